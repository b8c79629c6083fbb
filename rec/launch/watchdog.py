"""The driver's ear: a listener that supervisors report to, and a thread that ends a run gone wrong."""

import contextlib
import logging
import queue
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

from rec.core.errors import RankError, RecError
from rec.launch.config import LaunchConfig
from rec.launch.watch import RankView, Watch
from rec.launch.wire import bound_silence, receive, send

logger = logging.getLogger(__name__)

_TURN_S = 0.2
_STOP_S = 8.0
# Horovod gives a process that Spark cancels five seconds twice.
_CANCEL_S = 15.0
_DRIVER_PAUSE_S = 5.0
OnBeat = Callable[[RankView], None]


class Watchdog:
    """Context around a run. ``verdict`` is set when the run was ended, ``signal`` when the user ended it."""

    def __init__(self, bind: str, host: str, num_proc: int, config: LaunchConfig, cancel: Callable[[], None]):
        self.token = secrets.token_bytes(32)
        self.verdict: RecError | None = None
        self.signal: int | None = None
        self.on_beat: OnBeat | None = None
        self._cancel = cancel
        self._listener = socket.create_server((bind, 0))
        self._listener.settimeout(_TURN_S)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._heard: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self._connections: dict[int, Connection] = {}
        self._closing = threading.Event()
        self._wakeup, self._wakeup_end = socket.socketpair()
        self._watch = Watch(num_proc, config, time.monotonic())
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._accept, self._guard)]

    def __enter__(self) -> "Watchdog":
        # Signal numbers arrive here whatever handler is in force: Horovod replaces them and keeps what it hears.
        self._wakeup.setblocking(False)
        self._wakeup_end.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup_end.fileno(), warn_on_full_buffer=False)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        self._closing.set()
        for thread in self._threads:
            thread.join()
        # What arrived last still counts, such as the error of a rank whose loss ended the run.
        try:
            self._drain()
            self.verdict = self.verdict or self._watch.verdict(time.monotonic() + _STOP_S)
        except Exception as error:
            self._fail(error)
        self._listener.close()
        for connection in self._connections.values():
            connection.close()
        self._wakeup.close()
        self._wakeup_end.close()

    def unheard(self) -> list[int]:
        """Return the ranks that never reported."""
        return [v.rank for v in self._watch.ranks.values() if v.pid is None]

    def _accept(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                accepted, _ = self._listener.accept()
                accepted.setblocking(True)
                threading.Thread(target=self._read, args=(Connection(accepted.detach()),), daemon=True).start()

    def _read(self, connection: Connection) -> None:
        """Hear one supervisor until its connection ends."""
        rank = None
        try:
            bound_silence(connection)
            deliver_challenge(connection, self.token)
            answer_challenge(connection, self.token)
            hello = receive(connection)
            rank = hello["rank"]
            self._connections[rank] = connection
            self._heard.put((rank, hello))
            while True:
                self._heard.put((rank, receive(connection)))
        except Exception as error:
            if rank is None:
                logger.warning("refused a connection that is no rank of this run: %s", error)
                connection.close()
            else:
                self._heard.put((rank, {"kind": "lost"}))

    def _guard(self) -> None:
        try:
            self._watch_over()
        except Exception as error:
            # Ranks that nobody watches could hang for ever. What they said is heard no more: it may be the fault.
            self._fail(error)
            self._order_all("stop")
            with contextlib.suppress(Exception):
                self._cancel()

    def _fail(self, error: Exception) -> None:
        logger.debug("the watch over the ranks failed", exc_info=error)
        self.verdict = self.verdict or RankError(f"the watch over the ranks failed, so the run was ended: {error!r}")

    def _watch_over(self) -> None:
        checked = time.monotonic()
        while not self._closing.is_set():
            self._drain()
            now = time.monotonic()
            if now - checked > _DRIVER_PAUSE_S:
                self._watch.resume(now - checked)
            checked = now
            if self._watch.wants_stacks(now):
                self._order_all("stacks")
            self.verdict = self._watch.verdict(now)
            self.signal = self._heard_signal()
            if self.verdict or self.signal:
                self._end_run()
                return

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            rank, message = self._heard.get(timeout=_TURN_S)
            while True:
                self._hear(rank, message)
                rank, message = self._heard.get_nowait()

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        self._watch.hear(rank, message, time.monotonic())
        for line in message.get("lines", ()):
            logger.info("rank %d: %s", rank, line)
        if message["kind"] == "error":
            self._order(rank, "noted")
        if message["kind"] == "beat" and self.on_beat:
            try:
                self.on_beat(self._watch.ranks[rank])
            except (Exception, SystemExit) as error:
                # Such as a closed terminal, where rich exits: the ranks are watched on without it.
                self.on_beat = None
                logger.warning("progress is shown no more: %r", error)

    def _heard_signal(self) -> int | None:
        with contextlib.suppress(BlockingIOError):
            for number in self._wakeup.recv(64):
                if number in (signal.SIGINT, signal.SIGTERM):
                    return number
        return None

    def _end_run(self) -> None:
        """Have every rank killed by its supervisor, and what does not end by Spark."""
        self._order_all("stop")
        if self.unheard() or not self._all_gone(_STOP_S):
            self._cancel()
            self._all_gone(_CANCEL_S)

    def _all_gone(self, seconds: float) -> bool:
        """Wait until every supervisor's connection has ended, and so its rank; False when that takes longer."""
        deadline = time.monotonic() + seconds
        while any(v.connected for v in self._watch.ranks.values()):
            if time.monotonic() > deadline:
                return False
            self._drain()
        return True

    def _order_all(self, order: str) -> None:
        for rank in list(self._connections):
            self._order(rank, order)

    def _order(self, rank: int, order: str) -> None:
        with contextlib.suppress(OSError):
            send(self._connections[rank], order)
