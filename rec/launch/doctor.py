"""What this machine has of what each stage needs, and how to mend what is missing."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rec.core.errors import RecError
from rec.etl.session import JARS_FOLDER, session_jars

REPOSITORY = JARS_FOLDER.parent
MIN_SHM_BYTES = 1 << 30
MIN_DISK_BYTES = 10 << 30
SERVE_PYTHON = REPOSITORY / ".venv-serve/bin/python"
TRITON_PORTS = (8000, 8001, 8002)


@dataclass(frozen=True)
class Finding:
    """One check: ``ok`` is None where the thing is optional and absent."""

    name: str
    ok: bool | None
    detail: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Yield a finding for each thing a stage needs."""
    checks: list[tuple[str, Callable[[], str], str]] = [
        ("Java 17", _java, "install openjdk-17-jre-headless and put java on PATH"),
        ("Delta jars", lambda: f"{len(session_jars())} in {JARS_FOLDER}", "run: make jars"),
        ("Horovod", _horovod, "run: make horovod"),
        ("torch, fbgemm, torchrec", _torch, "run: make python"),
        ("Petastorm", lambda: _import("petastorm", "petastorm.__version__"), "run: make python"),
        ("serving environment", _serving, "run: make serve"),
        ("ports", _ports, "stop what listens there, or set serve.http_port, serve.grpc_port, serve.metrics_port"),
        ("/dev/shm", _shm, "enlarge it: mount -o remount,size=4G /dev/shm (docker: --shm-size=4g)"),
        ("disk", _disk, "free space, or move the recipe's root and SPARK_LOCAL_DIRS to a larger disk"),
    ]
    for name, check, remedy in checks:
        try:
            yield Finding(name, True, check())
        except (RecError, RuntimeError, OSError) as error:
            yield Finding(name, False, " ".join(str(error).split())[:300], remedy)
    yield _optional("RAPIDS jar", _rapids, "only for a GPU or rec etl --explain; run: make gpu-jar")
    yield _optional("GPU", _gpu, "only for GPU runs; install the NVIDIA driver and see conf/spark/cluster-gpu.conf")


def _optional(name: str, check: Callable[[], str], remedy: str) -> Finding:
    try:
        return Finding(name, True, check())
    except (RuntimeError, OSError) as error:
        return Finding(name, None, str(error), remedy)


def _output(*command: str | Path, timeout_s: int = 120) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{Path(command[0]).name} gave no answer in {timeout_s} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"{command[0]} ended with {done.returncode}")
    return (done.stdout + done.stderr).strip()


def _import(module: str, expression: str, python: str | Path = sys.executable) -> str:
    # petastorm needs names that only the loader's compatibility module supplies.
    prelude = "import rec.data.petastorm_compat\n" if module == "petastorm" else ""
    return _output(python, "-W", "ignore", "-c", f"{prelude}import {module}\nprint({expression})").splitlines()[-1]


def _java() -> str:
    if shutil.which("java") is None:
        raise RuntimeError("java is not on PATH")
    text = _output("java", "-version")
    found = re.search(r'version "(\d+)([^"]*)"', text)
    if not found or int(found[1]) != 17:
        raise RuntimeError(f"found {text.splitlines()[0]}; Spark 4.0 with RAPIDS is run on 17")
    return f"{found[1]}{found[2]}"


def _horovod() -> str:
    built = "','.join(n for n in ('gloo', 'nccl', 'mpi') if getattr(h, n + '_built')())"
    return _import("horovod.torch as h, horovod", f"horovod.__version__ + ', built ops: ' + {built}")


def _torch() -> str:
    modules = "torch, fbgemm_gpu, torchrec"
    return _import(modules, "f'{torch.__version__}, {fbgemm_gpu.__version__}, {torchrec.__version__}'")


def _serving() -> str:
    if not SERVE_PYTHON.exists():
        raise RuntimeError(f"{SERVE_PYTHON} is not there")
    versions = _import(
        "numpy, onnxruntime, rec", "f'numpy {numpy.__version__}, {onnxruntime.__version__}'", SERVE_PYTHON
    )
    servers = list(SERVE_PYTHON.parents[1].glob("lib/python3*/site-packages/pytriton/tritonserver/bin/tritonserver"))
    if not servers:
        raise RuntimeError(f"no tritonserver in {SERVE_PYTHON.parents[1]}")
    return f"tritonserver, {versions.replace(', ', ', onnxruntime ')}"


def _ports() -> str:
    taken = []
    for port in TRITON_PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                taken.append(str(port))
    if taken:
        raise RuntimeError(f"in use: {', '.join(taken)}")
    return f"{', '.join(map(str, TRITON_PORTS))} are free"


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
    jars = sorted(p.name for p in (JARS_FOLDER / "gpu").glob("rapids-4-spark_*.jar"))
    if not jars:
        raise RuntimeError(f"none in {JARS_FOLDER / 'gpu'}")
    return ", ".join(jars)


def _gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        raise RuntimeError("no nvidia-smi on PATH")
    return _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
