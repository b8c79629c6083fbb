"""What Horovod starts in each Spark task: one process that starts the rank, speaks for it and can kill it.

The rank is a child of its own because only a parent learns the signal that ended a process, and because a stopped or
spinning rank cannot answer for itself. This module loads no engine.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any

from horovod.spark.task import get_available_devices

from rec.launch.wire import NOTE_BYTES, Order, connect, die_with_parent, receive, send

_TURN_S = 0.5
_EXIT_S = 10.0
_STACKS_S = 2.0
_OUTPUT_LINES = 200


def supervise(order: Order) -> bytes | None:
    """Run one rank to its end; return its pickled result, or None when it gave none and the driver knows why."""
    die_with_parent(os.getppid())
    driver = connect(order.address, order.token)
    try:
        return _Supervisor(order, driver).run()
    finally:
        driver.close()


class _Supervisor:
    """A rank's process, the pipe to it and the connection to the driver."""

    def __init__(self, order: Order, driver: Connection):
        self._driver = driver
        self._stacks, self._note = os.memfd_create("stacks"), os.memfd_create("note")
        self._rank, theirs = Pipe()
        self._process = _start_rank(order, theirs, (self._stacks, self._note))
        theirs.close()
        self._rank.send_bytes(order.program)
        self._output: deque[str] = deque(maxlen=_OUTPUT_LINES)
        self._result: bytes | None = None
        assert self._process.stdout
        self._reader = threading.Thread(target=self._read_output, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def run(self) -> bytes | None:
        try:
            send(
                self._driver,
                "hello",
                rank=int(os.environ["HOROVOD_RANK"]),
                host=socket.gethostname(),
                pid=self._process.pid,
            )
            self._attend()
            self._reader.join(1.0)
            self._tell_alive()
            send(self._driver, "exit", code=self._process.returncode, **self._progress())
        except OSError:
            # The driver is gone, and with it whoever waits for this rank.
            self._result = None
        finally:
            self._kill()
            os.close(self._stacks)
            os.close(self._note)
        return self._result

    def _attend(self) -> None:
        """Carry messages both ways until the rank has ended."""
        sources: list[Any] = [self._driver, self._rank]
        told_at = 0.0
        while self._process.poll() is None:
            for source in wait(sources, timeout=_TURN_S):
                if source is self._driver:
                    self._obey(self._driver_order())
                elif not self._forward():
                    sources.remove(self._rank)
                    self._await_exit()
            if time.monotonic() - told_at > 2 * _TURN_S:
                told_at = time.monotonic()
                self._tell_alive()
        while self._rank in sources and self._rank.poll():
            if not self._forward():
                break

    def _driver_order(self) -> str:
        try:
            return receive(self._driver)["kind"]
        except EOFError:
            raise ConnectionResetError("the driver closed the connection") from None

    def _obey(self, order: str) -> None:
        if order == "stop":
            self._kill()
        elif order == "stacks":
            text = self._ask_stacks()
            send(self._driver, "stacks", text=text, state=_process_state(self._process.pid), **self._progress())
        elif order == "noted":
            with contextlib.suppress(OSError):
                send(self._rank, "noted")

    def _forward(self) -> bool:
        """Pass one message of the rank on; False when its end of the pipe is closed."""
        try:
            message = receive(self._rank)
            if message["kind"] == "result":
                self._result = self._rank.recv_bytes()
        except (EOFError, OSError):
            return False
        send(self._driver, **message)
        return True

    def _progress(self) -> dict[str, Any]:
        """Return the phase and step that the rank noted last; empty before its first note."""
        return json.loads(os.pread(self._note, NOTE_BYTES, 0) or b"{}")

    def _tell_alive(self) -> None:
        lines = [self._output.popleft() for _ in range(len(self._output))]
        send(self._driver, "alive", state=_process_state(self._process.pid), lines=lines)

    def _ask_stacks(self) -> str:
        """Return the Python stack of every thread of the rank; empty where it cannot answer."""
        start = os.fstat(self._stacks).st_size
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
        size, deadline = start, time.monotonic() + _STACKS_S
        while time.monotonic() < deadline:
            time.sleep(0.2)
            previous, size = size, os.fstat(self._stacks).st_size
            if size > start and size == previous:
                break
        return os.pread(self._stacks, size - start, start).decode(errors="replace")

    def _await_exit(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        self._kill()

    def _kill(self) -> None:
        """End the rank and what it started, also where the rank itself has ended: SIGKILL ends stopped ones too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read_output(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._output.append(line.decode(errors="replace").rstrip("\n"))


def _start_rank(order: Order, pipe: Connection, files: tuple[int, int]) -> subprocess.Popen:
    num_cores = len(os.sched_getaffinity(0))
    threads = str(order.num_threads or max(1, num_cores // int(os.environ["HOROVOD_LOCAL_SIZE"])))
    devices = get_available_devices()
    path = [p for p in (order.python_path, os.environ.get("PYTHONPATH")) if p]
    environment = {
        **os.environ,
        # Spark sets this to spark.task.cpus, which is 1 unless someone says otherwise.
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
        "PYTHONPATH": os.pathsep.join(path),
    }
    if devices:
        # The GPU that Spark assigned to this task; the rank sees it as device 0.
        environment["CUDA_VISIBLE_DEVICES"] = devices[0]
    return subprocess.Popen(
        [sys.executable, "-m", "rec.launch.rank", str(os.getpid()), str(pipe.fileno()), *map(str, files)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=(pipe.fileno(), *files),
        start_new_session=True,
    )


def _process_state(pid: int) -> str:
    """Return the kernel's letter for a process: R running, S sleeping, D in I/O, T stopped, Z ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "?"
