"""What this machine has of what each stage needs, and how to mend what is missing."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rec.core.errors import RecError, ServingError
from rec.etl.receipt import rapids_jar
from rec.etl.session import JARS_FOLDER, session_jars
from rec.serve.environment import find_environment
from rec.serve.ports import check_port

MIN_SHM_BYTES = 1 << 30
MIN_DISK_BYTES = 10 << 30
# Triton's own HTTP, gRPC and metrics ports, by the setting that moves each.
TRITON_PORTS = {"serve.http_port": 8000, "serve.grpc_port": 8001, "serve.metrics_port": 8002}


@dataclass(frozen=True)
class Finding:
    """One check: ``ok`` is None where the thing is optional and absent."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class _Check:
    look: Callable[[], str]
    remedy: str
    optional: bool = False


def names() -> list[str]:
    """Return what is looked at, in the order of the stages."""
    return [*_checks()]


def examine() -> Iterator[Finding]:
    """Yield a finding for each thing a stage needs."""
    for name in names():
        yield find(name)


def find(name: str) -> Finding:
    """Look at one thing; a finding that is not ok says what to do."""
    check = _checks()[name]
    try:
        return Finding(name, True, check.look())
    except (RecError, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())
        # What our own errors say after the semicolon is a remedy too.
        detail = text.partition("; ")[0] if isinstance(error, RecError) else text
        return Finding(name, None if check.optional else False, detail[:300], check.remedy)


def _checks() -> dict[str, _Check]:
    return {
        "Java 17": _Check(_java, "install openjdk-17-jre-headless; put its java on PATH, or its folder in JAVA_HOME"),
        "Delta jars": _Check(lambda: f"{len(session_jars())} in {JARS_FOLDER}", "run: make jars"),
        "Horovod": _Check(_horovod, "run: make horovod"),
        "torch, fbgemm, torchrec": _Check(_torch, "run: make python"),
        "Petastorm": _Check(_petastorm, "run: make python"),
        "serving environment": _Check(_serving, "run: make serve"),
        "ports": _Check(_ports, f"stop what listens there, or set {', '.join(TRITON_PORTS)} to others"),
        "/dev/shm": _Check(_shm, "enlarge it: mount -o remount,size=4G /dev/shm (docker: --shm-size=4g)"),
        "disk": _Check(_disk, "free space, or move the recipe's root and SPARK_LOCAL_DIRS to a larger disk"),
        "RAPIDS jar": _Check(_rapids, "only for a GPU or rec etl --explain; run: make gpu-jar", optional=True),
        "GPU": _Check(
            _gpu,
            "only for GPU runs; install the NVIDIA driver and see conf/spark/cluster-gpu.conf",
            optional=True,
        ),
    }


def _output(*command: str | Path, timeout_s: int = 120) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{Path(command[0]).name} gave no answer in {timeout_s} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")
    return (done.stdout + done.stderr).strip()


def _import(modules: str, expression: str, prelude: str = "") -> str:
    """Return what an expression over some modules is in a Python of its own: a crash there is one finding."""
    return _output(
        sys.executable, "-W", "ignore", "-c", f"{prelude}import {modules}\nprint({expression})"
    ).splitlines()[-1]


def _java() -> str:
    # As Spark looks for it.
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin/java") if home else shutil.which("java")
    if java is None:
        raise RuntimeError("java is not on PATH, JAVA_HOME is not set")
    text = _output(java, "-version")
    found = re.search(r'version "(\d+)([^"]*)"', text)
    if not found or int(found[1]) != 17:
        raise RuntimeError(f"{java} is {text.splitlines()[0]}, Spark 4.0 with RAPIDS is run on 17")
    return f"{found[1]}{found[2]}"


def _horovod() -> str:
    built = "','.join(n for n in ('gloo', 'nccl', 'mpi') if getattr(h, n + '_built')())"
    return _import("horovod.torch as h, horovod", f"horovod.__version__ + ', built ops: ' + {built}")


def _torch() -> str:
    modules = "torch, fbgemm_gpu, torchrec"
    return _import(modules, "f'{torch.__version__}, {fbgemm_gpu.__version__}, {torchrec.__version__}'")


def _petastorm() -> str:
    # It needs names that only the loader's compatibility module supplies.
    return _import("petastorm", "petastorm.__version__", "import rec.data.petastorm_compat\n")


def _serving() -> str:
    environment = find_environment()
    return f"tritonserver in {environment.prefix}"


def _ports() -> str:
    taken = []
    for field, port in TRITON_PORTS.items():
        try:
            check_port("127.0.0.1", port, field)
        except ServingError as error:
            taken.append(str(error).partition("; ")[0])
    if taken:
        raise RuntimeError(", ".join(taken))
    return f"{', '.join(map(str, TRITON_PORTS.values()))} are free"


def _space(folder: str | Path, least: int) -> str:
    free = shutil.disk_usage(folder).free
    if free < least:
        raise RuntimeError(f"{free / 2**30:.1f} GiB free in {folder}, at least {least / 2**30:.0f} wanted")
    return f"{free / 2**30:.1f} GiB free"


def _shm() -> str:
    return _space("/dev/shm", MIN_SHM_BYTES)


def _disk() -> str:
    return _space(os.getcwd(), MIN_DISK_BYTES)


def _rapids() -> str:
    return rapids_jar().name


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        raise RuntimeError("no nvidia-smi on PATH")
    return _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
