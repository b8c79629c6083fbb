"""What the doctor finds on a machine that was set up, and what it says where something is missing."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rec.cli import main
from rec.launch import doctor

REPOSITORY = Path(__file__).resolve().parents[2]
SERVE_PYTHON = REPOSITORY / ".venv-serve/bin/python"
LOOK = "import dataclasses, json, sys; from rec.launch.doctor import find; print(json.dumps(vars(find(sys.argv[1]))))"


@pytest.fixture(scope="module")
def findings():
    return {finding.name: finding for finding in doctor.examine()}


@pytest.mark.parametrize(
    "name", ["Java 17", "Delta jars", "Horovod", "torch, fbgemm, torchrec", "Petastorm", "serving environment", "disk"]
)
def test_what_make_test_installs_is_found(findings, name):
    assert findings[name].ok, findings[name]


def test_horovod_says_which_operations_it_was_built_with(findings):
    assert "gloo" in findings["Horovod"].detail


def test_every_make_target_that_a_remedy_names_is_there():
    remedies = [check.remedy for check in doctor._checks().values()]
    targets = {target for remedy in remedies for target in re.findall(r"make ([a-z-]+)", remedy)}
    assert {"jars", "horovod", "python", "serve", "gpu-jar"} <= targets
    for target in targets:
        subprocess.run(["make", "--dry-run", target], cwd=REPOSITORY, check=True, capture_output=True)


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def no_java(monkeypatch, folder):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def another_java(monkeypatch, folder):
    executable(folder / "java", "echo 'openjdk version \"21.0.2\" 2024-01-16' >&2")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("JAVA_HOME", raising=False)


def java_home_that_is_gone(monkeypatch, folder):
    monkeypatch.setenv("JAVA_HOME", str(folder / "gone"))


def shadowed(package: str):
    """An installation that does not load: the first of its name on the path of modules."""

    def change(monkeypatch, folder):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(f"raise ImportError('{package}.so: undefined symbol: _ZN3c10')\n")
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return change


def no_gpu(monkeypatch, folder):
    monkeypatch.setenv("PATH", str(folder))


def gpu_without_driver(monkeypatch, folder):
    executable(folder / "nvidia-smi", "echo 'NVIDIA-SMI has failed: it could not reach the driver'; exit 9")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


CHANGES = {
    "no java": ("Java 17", no_java, "java is not on PATH", "install openjdk-17"),
    "another java": ("Java 17", another_java, "21.0.2", "install openjdk-17"),
    "a JAVA_HOME that is gone": ("Java 17", java_home_that_is_gone, "gone/bin/java", "JAVA_HOME"),
    "horovod that does not load": ("Horovod", shadowed("horovod"), "undefined symbol", "run: make horovod"),
    "torch that does not load": ("torch, fbgemm, torchrec", shadowed("torch"), "undefined", "run: make python"),
    "fbgemm that does not load": ("torch, fbgemm, torchrec", shadowed("fbgemm_gpu"), "fbgemm_gpu.so", "make python"),
    "petastorm that does not load": ("Petastorm", shadowed("petastorm"), "petastorm.so", "run: make python"),
    "no GPU": ("GPU", no_gpu, "no nvidia-smi on PATH", "only for GPU runs; install the NVIDIA driver"),
    "a GPU without a driver": ("GPU", gpu_without_driver, "could not reach the driver", "install the NVIDIA driver"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_changed_environment_is_told_with_its_remedy(monkeypatch, tmp_path, case):
    name, change, detail, remedy = CHANGES[case]
    change(monkeypatch, tmp_path)
    found = doctor.find(name)
    assert found.ok is (None if name == "GPU" else False)
    assert detail in found.detail
    assert remedy in found.remedy


def look_from(name: str, python, **variables: str) -> doctor.Finding:
    """Return a finding of another Python, or of another copy of the package."""
    done = subprocess.run(
        [python, "-c", LOOK, name], capture_output=True, text=True, env={**os.environ, **variables}, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return doctor.Finding(**json.loads(done.stdout))


@pytest.mark.parametrize(
    ("name", "module", "remedy"),
    [
        ("Horovod", "horovod", "make horovod"),
        ("torch, fbgemm, torchrec", "torch", "make python"),
        ("Petastorm", "petastorm", "make python"),
    ],
)
def test_a_python_without_the_module_is_told(name, module, remedy):
    found = look_from(name, SERVE_PYTHON)
    assert found.ok is False
    assert f"No module named '{module}" in found.detail
    assert remedy in found.remedy


@pytest.fixture(scope="module")
def bare_copy(tmp_path_factory) -> Path:
    """The package as a clone has it: no jars and no serving environment beside it."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(REPOSITORY / "rec", folder / "rec", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize(
    ("name", "ok", "detail", "remedy"),
    [
        ("Delta jars", False, "jars: no delta-spark jar", "run: make jars"),
        ("RAPIDS jar", None, "jars/gpu: no rapids-4-spark jar", "run: make gpu-jar"),
    ],
)
def test_a_clone_without_jars_is_told(bare_copy, name, ok, detail, remedy):
    (bare_copy / "jars/gpu").mkdir(parents=True, exist_ok=True)
    found = look_from(name, sys.executable, PYTHONPATH=str(bare_copy))
    assert found.ok is ok
    assert f"{bare_copy}/{detail}" in found.detail
    assert remedy in found.remedy


def test_a_clone_without_a_serving_environment_is_told(bare_copy, tmp_path):
    # Beside another Python too: the usual places are all empty.
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    packages = [str(bare_copy), *[p for p in sys.path if "site-packages" in p]]
    found = look_from("serving environment", environment / "bin/python", PYTHONPATH=os.pathsep.join(packages))
    assert found.ok is False
    assert f"no nvidia-pytriton in {bare_copy}/.venv-serve, {tmp_path}/.venv-serve" in found.detail
    assert found.remedy == "run: make serve"


@pytest.mark.parametrize(("field", "port"), doctor.TRITON_PORTS.items())
def test_a_port_in_use_is_named_with_the_setting_that_moves_it(field, port):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Where something listens there already, that is the port in use.
        with contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            taken.listen()
        found = doctor.find("ports")
    assert found.ok is False
    assert f"{field} {port}: in use by" in found.detail
    assert field in found.remedy


def small_disk(folder: Path, name: str) -> doctor.Finding:
    """Look from a mount namespace of its own, where a file system of one megabyte lies over ``folder``."""
    script = f"mount -t tmpfs -o size=1m tmpfs {folder} && cd {folder} && exec {sys.executable} -c '{LOOK}' '{name}'"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return doctor.Finding(**json.loads(done.stdout))


def test_a_small_shared_memory_is_told():
    found = small_disk(Path("/dev/shm"), "/dev/shm")
    assert found.ok is False
    assert "0.0 GiB free in /dev/shm, at least 1 wanted" in found.detail
    assert "mount -o remount,size=4G /dev/shm" in found.remedy


def test_a_full_disk_is_told(tmp_path):
    found = small_disk(tmp_path, "disk")
    assert found.ok is False
    assert f"0.0 GiB free in {tmp_path}, at least 10 wanted" in found.detail
    assert "move the recipe's root and SPARK_LOCAL_DIRS" in found.remedy


def test_the_command_prints_a_remedy_for_each_and_ends_with_2(monkeypatch, tmp_path, capsys):
    no_java(monkeypatch, tmp_path)
    assert main(["doctor"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(doctor.names())
    [java] = [line for line in lines if "Java 17" in line]
    assert "missing" in java
    assert "→ install openjdk-17-jre-headless" in java
