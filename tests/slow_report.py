"""Run the tests marked slow and write what ran to a page: commit, machine, minutes, result."""

import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


class Outcomes:
    """Collects each test's outcome and seconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.rows.append((report.nodeid, report.outcome, report.duration))


def machine() -> str:
    """Processor, cores and memory of this machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{models[0] if models else platform.machine()}, {len(models)} cores, {kib / 2**20:.0f} GiB"


def commit() -> str:
    """The commit of the checkout, with a plus where files differ from it beyond the page itself."""
    head = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=REPOSITORY, text=True).strip()
    changed = subprocess.check_output(["git", "status", "--porcelain"], cwd=REPOSITORY, text=True).splitlines()
    return head + ("+" if [c for c in changed if not c.endswith("docs/slow.md")] else "")


def page(outcomes: Outcomes, minutes: float) -> str:
    """The page's text."""
    rows = [f"| `{node}` | {outcome} | {seconds / 60:.1f} |" for node, outcome, seconds in outcomes.rows]
    head = f"Commit `{commit()}`, {machine()}, Python {platform.python_version()}, {minutes:.0f} minutes in all."
    return "\n".join(["# Slow tests", "", head, "", "| test | result | minutes |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    outcomes, start = Outcomes(), time.monotonic()
    code = pytest.main(["-m", "slow", *sys.argv[2:]], plugins=[outcomes])
    if outcomes.rows:
        Path(sys.argv[1]).write_text(page(outcomes, (time.monotonic() - start) / 60), encoding="utf-8")
    sys.exit(code)
