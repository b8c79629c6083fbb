"""The machine and the versions that figures belong to: `python bench/machine.py`."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe(*packages: str) -> str:
    """Return processor, cores, memory, and the versions of Python and of some packages."""
    names = [line.split(":", 1)[1].strip() for line in _lines("cpuinfo") if line.startswith("model name")]
    memory_gib = int(_lines("meminfo")[0].split()[1]) / 2**20
    versions = [f"Python {platform.python_version()}", *[f"{name} {version(name)}" for name in packages]]
    processor = names[0] if names else platform.machine()
    return ", ".join([processor, f"{os.cpu_count()} cores", f"{memory_gib:.0f} GiB", *versions])


def _lines(name: str) -> list[str]:
    return Path("/proc", name).read_text().splitlines()


if __name__ == "__main__":
    print(describe())
