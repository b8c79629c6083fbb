"""A real tritonserver on a model repository, started and stopped from Python."""

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO, NoReturn

from rec.bundle.layout import read_schema
from rec.core.errors import ServingError
from rec.core.manifest import write_atomic
from rec.serve import supervise
from rec.serve.config import ServeConfig
from rec.serve.control import Control
from rec.serve.environment import ServingEnvironment, find_environment
from rec.serve.ports import check_port, free_port
from rec.serve.repository import Repository
from rec.serve.request import model_names

RUNNING = "server.json"
LOG = "server.log"
HELD = ".server.lock"
_EXIT_TIMEOUT_S = 5
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Server:
    """One tritonserver process. It ends with ``stop``, with this process, and with nothing else.

    Models load by explicit order only: a polling server loads folders that are still being written.
    """

    def __init__(self, config: ServeConfig):
        self.config = config
        self.repository = Repository(config.repository)
        self.log = self.repository.path / LOG
        self._http_port = config.http_port or 0
        self._process: subprocess.Popen | None = None
        self._backends = ""
        self._held: BinaryIO | None = None
        self._said = 0

    @property
    def url(self) -> str:
        """host:port of the HTTP side."""
        host = _ANY_HOST.get(self.config.host, self.config.host)
        return f"[{host}]:{self._http_port}" if ":" in host else f"{host}:{self._http_port}"

    @property
    def control(self) -> Control:
        return Control(self.url, self.config.timeout_s)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> "Server":
        """Start, wait until it answers, and load every model at the version its config names.

        Raises ServingError where a port is in use, the server does not come up, or a model cannot be loaded.
        """
        for field in ("http_port", "grpc_port", "metrics_port"):
            if port := getattr(self.config, field):
                check_port(self.config.host, port, f"serve.{field}")
        self._http_port = self.config.http_port or free_port(self.config.host)
        environment = find_environment(self.config.environment)
        self.repository.make()
        self._take_repository()
        self._backends = tempfile.mkdtemp(prefix="rec-triton-")
        atexit.register(self.stop)
        try:
            environment.link_backend(Path(self._backends))
            self._launch(environment)
            self._wait()
            self._load_all()
        except BaseException:
            self.stop()
            raise
        # What ends the server stands after this; what comes before is of a start that went well.
        self._said = self.log.stat().st_size
        write_atomic(self.repository.path / RUNNING, json.dumps({"pid": self.pid, "url": self.url}))
        return self

    def stop(self) -> None:
        """End the server and wait for it; a second call does nothing."""
        atexit.unregister(self.stop)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(supervise.GRACE_S + 5)
            except subprocess.TimeoutExpired:
                # The server is bound to die with its supervisor.
                self._process.kill()
                self._process.wait()
            running = _read_running(self.repository)
            if running and running["pid"] == self._process.pid:
                (self.repository.path / RUNNING).unlink(missing_ok=True)
            self._process = None
        if self._backends:
            shutil.rmtree(self._backends, ignore_errors=True)
        if self._held:
            self._held.close()

    def wait(self) -> NoReturn:
        """Wait for as long as the server runs. Raises ServingError when it ends by itself."""
        assert self._process is not None, "not started"
        code = self._process.wait()
        raise ServingError(
            f"tritonserver at {self.url} ended by itself with {code}: {self._last_lines()}; "
            f"see {self.log}, start it again"
        )

    def __enter__(self) -> "Server":
        return self if self._process else self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def _take_repository(self) -> None:
        """Hold the repository until ``stop`` or the end of this process. Raises ServingError where a server has it."""
        self._held = open(self.repository.path / HELD, "wb")  # noqa: SIM115
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._held.close()
            running = _read_running(self.repository)
            where = f"at {running['url']}" if running else "that starts"
            raise ServingError(
                f"{self.repository.path}: the server {where} runs on it, and pushes reach one server only; use that "
                "one, stop it first, or choose another serve.repository"
            ) from None

    def _launch(self, environment: ServingEnvironment) -> None:
        command = [
            sys.executable,
            "-IS",
            supervise.__file__,
            str(os.getpid()),
            str(environment.tritonserver),
            *self._arguments(),
        ]
        self._said = 0
        with open(self.log, "wb") as log:
            # Its own session: Ctrl-C in a terminal reaches this process, which then stops the server in order.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment.variables(),
                start_new_session=True,
            )

    def _arguments(self) -> list[str]:
        options = {
            "model-repository": self.repository.path,
            "backend-directory": self._backends,
            "model-control-mode": "explicit",
            # One failed load would turn server readiness off for good; each model has a readiness of its own.
            "strict-readiness": "false",
            "exit-timeout-secs": _EXIT_TIMEOUT_S,
            "http-address": self.config.host,
            "http-port": self._http_port,
            "allow-gpu-metrics": "false",
        }
        for name, port in (("grpc", self.config.grpc_port), ("metrics", self.config.metrics_port)):
            options[f"allow-{name}"] = "true" if port else "false"
            if port:
                options |= {f"{name}-port": port, f"{name}-address": self.config.host}
        return [f"--{name}={value}" for name, value in options.items()]

    def _wait(self) -> None:
        assert self._process is not None
        control = Control(self.url, 2.0)
        deadline = time.monotonic() + self.config.timeout_s
        while not control.live():
            if self._process.poll() is not None:
                raise ServingError(
                    f"tritonserver ended with {self._process.returncode} while starting: {self._last_lines()}; "
                    f"see {self.log}"
                )
            if time.monotonic() > deadline:
                raise ServingError(
                    f"tritonserver gave no answer on {self.url} in serve.timeout_s = {self.config.timeout_s} s: "
                    f"{self._last_lines()}; see {self.log}"
                )
            time.sleep(0.05)

    def _load_all(self) -> None:
        for name in self.repository.names():
            state = self.repository.state(name)
            assert state is not None
            # A push that died between its two configs left them at odds: the raw model's counts.
            schema = read_schema(self.repository.bundle_folder(name, state.version))
            self.repository.write_configs(name, schema, state)
            self.control.load_all(model_names(name).values())

    def _last_lines(self) -> str:
        text = self.log.read_bytes()[self._said :].decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        faults = [line for line in lines if line.startswith("E")] or lines
        return " | ".join(faults[-2:])[-400:] or "no output"


def running_server(repository: Repository, timeout_s: float) -> Control | None:
    """Return the server that some process runs on this repository, or None."""
    running = _read_running(repository)
    if not running or not Path(f"/proc/{running['pid']}").exists():
        return None
    control = Control(running["url"], timeout_s)
    return control if control.live() else None


def _read_running(repository: Repository) -> dict | None:
    try:
        return json.loads((repository.path / RUNNING).read_text())
    except (OSError, ValueError):
        return None
