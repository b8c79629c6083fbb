"""The process of one rank: started by its supervisor as ``python -m rec.launch.rank``."""

import faulthandler
import importlib
import json
import logging
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from rec.core.errors import RecError, TrainingError
from rec.launch.wire import NOTE_BYTES, die_with_parent, receive, send

_BEAT_S = 0.5
_NOTED_S = 5.0
_EXCHANGE = re.compile(r"gloo|nccl|Connection (closed|reset)|Horovod|TCPStore|Broken pipe", re.IGNORECASE)
_EXCHANGE_FILES = ("/horovod/", "/torch/distributed/", "/torchrec/distributed/")


class Pulse:
    """The rank's progress, told to the supervisor by a thread of its own twice a second, and noted at once in memory
    that the supervisor can read when this process no longer speaks."""

    def __init__(self, connection: Connection, note: int, phase: str, limit_s: float):
        self._connection = connection
        self._note = note
        self._lock = threading.Lock()
        self._beat: dict[str, Any] = {"phase": phase, "step": None, "limit_s": limit_s, "figures": {}}
        self._progress_at = time.monotonic()

    def start(self) -> None:
        threading.Thread(target=self._run, name="pulse", daemon=True).start()

    def progress(self, *, phase: str, step: int | None, limit_s: float, figures: dict[str, Any]) -> None:
        """Note progress: the time allowed until the next note starts again."""
        os.pwrite(self._note, json.dumps({"phase": phase, "step": step}).encode().ljust(NOTE_BYTES), 0)
        with self._lock:
            self._beat = {"phase": phase, "step": step, "limit_s": limit_s, "figures": figures}
            self._progress_at = time.monotonic()

    def send(self, kind: str, **content: Any) -> None:
        with self._lock:
            send(self._connection, kind, **content)

    def send_result(self, result: bytes) -> None:
        with self._lock:
            send(self._connection, "result")
            self._connection.send_bytes(result)

    def beat(self) -> None:
        with self._lock:
            send(self._connection, "beat", idle_s=time.monotonic() - self._progress_at, **self._beat)

    def _run(self) -> None:
        while True:
            try:
                self.beat()
            except OSError:
                # The supervisor is gone; the kernel ends this process.
                return
            time.sleep(_BEAT_S)


def function_reference(function: Callable) -> str:
    """Return ``module:name`` of a function that another process can import. Raises TrainingError for any other."""
    module, name = function.__module__, function.__qualname__
    if module == "__main__" or "<" in name:
        raise TrainingError(f"{module}.{name} cannot be imported by a rank; define it at the top level of a module")
    return f"{module}:{name}"


def resolve(reference: str) -> Callable:
    """Import what ``function_reference`` named."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def main() -> None:
    """Run the program that the supervisor sent; its result or its error goes back the same way."""
    parent, pipe, stacks, note = (int(a) for a in sys.argv[1:])
    die_with_parent(parent)
    # torch announces a renaming of its own at every start; nobody here can act on it.
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
    # In C and not in Python: it answers also while the interpreter's lock is held.
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    connection = Connection(pipe)
    program = pickle.loads(connection.recv_bytes())
    pulse = Pulse(connection, note, "start", program["start_s"])
    pulse.start()
    try:
        pulse.send_result(_run_program(program, pulse))
    except BaseException as error:
        pulse.beat()
        pulse.send("error", **_describe(error))
        # Peers fail as soon as this process is gone, so the driver must have this one's error first.
        if connection.poll(_NOTED_S):
            receive(connection)
        os._exit(1)


def _run_program(program: dict[str, Any], pulse: Pulse) -> bytes:
    from rec.launch.ranks import horovod_ranks

    function, arguments = resolve(program["function"]), pickle.loads(program["arguments"])
    with horovod_ranks(pulse, phase_s=program["phase_s"]) as ranks:
        result = pickle.dumps(function(ranks, *arguments))
        # Nobody leaves while another still counts on it.
        ranks.report(phase="end")
        ranks.barrier()
    return result


def _describe(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    innermost = frames[-1].filename if frames else ""
    in_exchange = any(part in innermost for part in _EXCHANGE_FILES) or bool(_EXCHANGE.search(str(error)))
    return {
        "type": type(error).__name__,
        "message": str(error),
        "mendable": isinstance(error, RecError),
        "in_exchange": in_exchange and not isinstance(error, RecError),
        "traceback": "".join(traceback.format_exception(error)),
    }


if __name__ == "__main__":
    main()
