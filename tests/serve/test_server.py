"""The server process: its ports, its end, and what is said where it cannot start."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from rec.core.errors import MissingDependencyError, ServingError
from rec.serve.client import Client
from rec.serve.config import ServeConfig
from rec.serve.environment import find_environment
from rec.serve.ports import free_port
from rec.serve.push import push
from rec.serve.server import Server


def processes(repository):
    """Return the pids of every process whose command line names the repository, stubs included."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if str(repository).encode() in command:
            found.append(int(folder.name))
    return sorted(found)


def wait_for_none(repository, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and processes(repository):
        time.sleep(0.1)
    return processes(repository)


def test_a_port_in_use_is_named_with_process_and_remedy(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for field in ("http_port", "grpc_port", "metrics_port"):
            expected = rf"serve\.{field} {port}: in use by process {os.getpid()} \(.+\); stop that process or set serve"
            with pytest.raises(ServingError, match=expected):
                Server(ServeConfig(repository=tmp_path, **{field: port})).start()
    assert processes(tmp_path) == []


def test_an_address_of_another_machine_is_named(tmp_path):
    with pytest.raises(ServingError, match=r"serve\.host 203\.0\.113\.7: cannot be bound: .* of this machine"):
        Server(ServeConfig(repository=tmp_path, host="203.0.113.7", http_port=free_port("127.0.0.1"))).start()


def test_a_missing_serving_environment_is_named_with_its_remedy(tmp_path):
    with pytest.raises(MissingDependencyError, match=rf"no nvidia-pytriton in {tmp_path}; create it with"):
        Server(ServeConfig(repository=tmp_path / "models", environment=tmp_path)).start()


def test_an_environment_without_what_a_model_needs_is_refused(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    (tmp_path / "lib/python3.11/site-packages/pytriton").mkdir(parents=True)
    with pytest.raises(MissingDependencyError, match=r"serving environment .*No module named .*; create it with"):
        find_environment(tmp_path)


def test_chosen_ports_are_opened_and_others_are_not(tmp_path):
    http, grpc, metrics = (free_port("127.0.0.1") for _ in range(3))
    config = ServeConfig(repository=tmp_path / "models", http_port=http, grpc_port=grpc, metrics_port=metrics)
    with Server(config) as server:
        assert server.url == f"127.0.0.1:{http}"
        socket.create_connection(("127.0.0.1", grpc), timeout=5).close()
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics", timeout=5) as reply:
            assert b"nv_" in reply.read()
    with Server(ServeConfig(repository=tmp_path / "models", http_port=http)), pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", grpc), timeout=5)
    assert processes(tmp_path) == []


def test_a_model_of_another_maker_is_named_and_nothing_is_left_running(tmp_path):
    (tmp_path / "models/other").mkdir(parents=True)
    (tmp_path / "models/other/config.pbtxt").write_text('name: "other"')
    with pytest.raises(ServingError, match=r"other/config\.pbtxt: not written by a push"):
        Server(ServeConfig(repository=tmp_path / "models")).start()
    assert processes(tmp_path) == []


def test_a_server_outlives_the_thread_that_started_it(tmp_path):
    server = Server(ServeConfig(repository=tmp_path / "models"))
    starting = threading.Thread(target=server.start)
    starting.start()
    starting.join()
    time.sleep(1)
    assert server.control.live()
    server.stop()
    server.stop()
    assert processes(tmp_path) == []


PUSH_AND_WAIT = """
import sys, time
from rec.serve.push import push
served = push(sys.argv[1], sys.argv[2])
print(served.url, flush=True)
time.sleep(float(sys.argv[3]))
"""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(None, id="exit", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, id="interrupted", marks=pytest.mark.slow),
    ],
)
def test_a_server_ends_with_the_process_that_pushed(bundles, tmp_path, end):
    models = tmp_path / "models"
    seconds = "600" if end else "0"
    command = [sys.executable, "-c", PUSH_AND_WAIT, str(bundles[0].path), str(models), seconds]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = owner.stdout.readline().strip()
    if end:
        with Client(url, "ranker") as client:
            assert client.state.version == 1
        # Owner, supervisor, server and one stub for each model.
        assert len(processes(models)) >= 5
        owner.send_signal(end)
    owner.wait(60)
    assert wait_for_none(models) == []


def test_a_server_that_ends_by_itself_is_an_error(tmp_path):
    with Server(ServeConfig(repository=tmp_path / "models")) as server:
        threading.Timer(0.5, os.kill, (server.pid, signal.SIGTERM)).start()
        with pytest.raises(
            ServingError, match=r"ended by itself with -?\d+: .*; see .*server\.log, start it again"
        ) as ended:
            server.wait()
    assert "CudaDriverHelper" not in str(ended.value)
    assert wait_for_none(tmp_path / "models") == []


def test_a_killed_supervisor_takes_the_server_along(tmp_path):
    server = Server(ServeConfig(repository=tmp_path / "models")).start()
    os.kill(server.pid, signal.SIGKILL)
    assert wait_for_none(tmp_path / "models") == []
    server.stop()


@pytest.mark.slow
def test_a_killed_stub_is_mended_by_the_next_load(bundles, tmp_path):
    served = push(bundles[0], tmp_path / "models")
    stubs = [p for p in processes(served.repository) if "python_backend_stub" in Path(f"/proc/{p}/cmdline").read_text()]
    assert len(stubs) == 2
    for pid in stubs:
        os.kill(pid, signal.SIGKILL)
    assert push(bundles[1], tmp_path / "models").version == 2
    with Client(served.url, "ranker") as client:
        assert client.state.version == 2
    served.stop()
