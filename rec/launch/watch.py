"""What the driver knows of each rank, and the verdict on a run: no sockets, no threads, no clock of its own."""

import re
import signal
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from rec.core import errors
from rec.core.errors import RankError, RecError
from rec.launch.config import LaunchConfig

# After a first failure others follow, as peers lose their partner: the cause is chosen among what arrives till then.
SETTLE_S = 2.0
STACKS_S = 4.0
_RECHECK_S = 5.0
_TAIL_LINES = 20
# The top frame of a rank that waits for others: it is late because another is.
_WAITING = re.compile(r"(/horovod/torch/|/torch/distributed/|/torchrec/distributed/)")
_TOP_FRAME = re.compile(r"\(most recent call first\):\n\s+File \"([^\"]+)\"")
_STATES = {"R": "running", "S": "sleeping", "D": "in uninterruptible I/O", "T": "stopped", "t": "traced", "Z": "ended"}


@dataclass
class RankView:
    """One rank as last heard of; ``heard_at`` is the driver's time of its last own sign of life."""

    rank: int
    heard_at: float
    host: str = "?"
    pid: int | None = None
    phase: str = "start"
    step: int | None = None
    idle_s: float = 0.0
    limit_s: float = float("inf")
    state: str = "?"
    figures: dict[str, Any] = field(default_factory=dict)
    connected: bool = False
    finished: bool = False
    ended: bool = False
    stacks: str | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))

    @property
    def place(self) -> str:
        step = "before its first step" if self.step is None else f"at step {self.step}"
        return f"in phase {self.phase} {step}"

    @property
    def name(self) -> str:
        return f"rank {self.rank} (host {self.host}, pid {self.pid})"

    def note(self, message: dict[str, Any]) -> None:
        """Take the phase and step that a supervisor read for a rank that no longer speaks."""
        self.phase, self.step = message.get("phase", self.phase), message.get("step", self.step)

    @property
    def waits_for_others(self) -> bool:
        return any(_WAITING.search(path) for path in _TOP_FRAME.findall(self.stacks or ""))


@dataclass(frozen=True)
class Failure:
    """One fault of one rank; ``follows`` when it may be another's consequence, as a broken exchange is."""

    follows: bool
    at: float
    error: RecError


class Watch:
    """Hears messages, gives a verdict. ``now`` is any clock that only runs forward."""

    def __init__(self, num_proc: int, config: LaunchConfig, now: float):
        self.ranks = {r: RankView(r, now) for r in range(num_proc)}
        self._config = config
        self._started = now
        self._failures: list[Failure] = []
        self._asked_at: float | None = None
        self._asked_not_before = now

    def hear(self, rank: int, message: dict[str, Any], now: float) -> None:
        view = self.ranks[rank]
        match message["kind"]:
            case "hello":
                view.connected, view.heard_at = True, now
                view.host, view.pid = message["host"], message["pid"]
            case "beat":
                view.heard_at = now
                for name in ("phase", "step", "idle_s", "limit_s", "figures"):
                    setattr(view, name, message[name])
            case "alive":
                view.state = message["state"]
                view.tail.extend(message["lines"])
            case "stacks":
                view.stacks, view.state = message["text"], message["state"]
                view.note(message)
            case "result":
                view.finished = True
            case "error":
                view.ended = True
                self._fail(message["in_exchange"], now, _raised(view, message))
            case "exit":
                view.note(message)
                self._hear_exit(view, message["code"], now)
            case "lost":
                if not view.ended and not view.finished:
                    self._fail(False, now, RankError(_lost(view)))
                view.ended, view.connected = True, False

    def resume(self, gap_s: float) -> None:
        """Forgive the ranks a time in which the driver itself stood still."""
        for view in self.ranks.values():
            view.heard_at += gap_s

    def verdict(self, now: float) -> RecError | None:
        """Return why the run must end, or None."""
        if self._failures:
            return self._first_cause(now)
        unheard = [r for r, v in self.ranks.items() if v.pid is None]
        if unheard and now - self._started > 2 * self._config.start_s:
            return RankError(
                f"ranks {unheard} did not report within twice start_s={self._config.start_s:g}; their executors cannot "
                "reach the driver, or the tasks hang: see the executors' logs"
            )
        late = [v for v in self._running() if self._late(v, now)]
        if not late:
            # Who was late goes on, and a later verdict needs stacks of its own time.
            self._asked_at = None
            return None
        if self._asked_at is None or not self._answered(now):
            return None
        culprits = self._culprits(late, now)
        if culprits:
            return self._hung(culprits, now)
        # They wait for a rank that is within its own limit.
        self._asked_at, self._asked_not_before = None, now + _RECHECK_S
        return None

    def wants_stacks(self, now: float) -> bool:
        """Tell once that a rank is late, so that every rank is to be asked where it stands."""
        late = any(self._late(v, now) for v in self._running())
        if self._failures or self._asked_at is not None or now < self._asked_not_before or not late:
            return False
        for view in self.ranks.values():
            view.stacks = None
        self._asked_at = now
        return True

    def _running(self) -> list[RankView]:
        return [v for v in self.ranks.values() if v.connected and not v.ended]

    def _late(self, view: RankView, now: float) -> bool:
        return view.idle_s > view.limit_s or self._silent(view, now)

    def _silent(self, view: RankView, now: float) -> bool:
        return now - view.heard_at > self._config.heartbeat_s

    def _answered(self, now: float) -> bool:
        assert self._asked_at is not None
        return now - self._asked_at > STACKS_S or all(v.stacks is not None for v in self._running())

    def _culprits(self, late: list[RankView], now: float) -> list[RankView]:
        silent = [v for v in late if self._silent(v, now)]
        own_fault = [v for v in late if not v.waits_for_others]
        everyone = late if len(late) == len(self._running()) else []
        return silent or own_fault or everyone

    def _first_cause(self, now: float) -> RecError | None:
        settled = now - self._failures[0].at > SETTLE_S or all(v.ended for v in self.ranks.values())
        if not settled:
            return None
        return min(self._failures, key=lambda f: (f.follows, f.at)).error

    def _fail(self, follows: bool, now: float, error: RecError) -> None:
        self._failures.append(Failure(follows, now, error))

    def _hear_exit(self, view: RankView, code: int, now: float) -> None:
        # With its result delivered, how it ended no longer matters.
        if not view.ended and not view.finished:
            self._fail(code == -signal.SIGABRT, now, RankError(_exited(view, code)))
        view.ended = True

    def _hung(self, culprits: list[RankView], now: float) -> RankError:
        lines = []
        for view in culprits:
            if self._silent(view, now):
                silence, limit = now - view.heard_at, self._config.heartbeat_s
                why = f"sent no sign of life for {silence:.0f} s (limit heartbeat_s={limit:g})"
            else:
                why = f"made no progress for {view.idle_s:.0f} s (limit {view.limit_s:g})"
            lines.append(f"{view.name} hung {view.place}: it {why}; {_remedy(view)}")
        for view in culprits:
            if view.stacks:
                lines.append(f"stacks of rank {view.rank}:\n{view.stacks.rstrip()}")
        return RankError("\n".join(lines))


def _remedy(view: RankView) -> str:
    if view.stacks is None:
        return "nothing answers on its host: see whether that host is up"
    state = f"its process is {_STATES.get(view.state, view.state)}"
    if view.stacks:
        return f"{state}; see its stacks below, or raise launch.phase_s if a step may take that long"
    return f"{state} and gives no stacks; see who stopped it (SIGCONT continues a process)"


def _raised(view: RankView, message: dict[str, Any]) -> RecError:
    what = f"{message['type']}: {message['message']}".rstrip(": ")
    report = RankError(f"{view.name} raised {what} {view.place}\n{message['traceback'].rstrip()}")
    mendable = getattr(errors, message["type"], None) if message["mendable"] else None
    if mendable is None:
        return report
    # A mistake of the user's is told as where it is found; the rank's traceback stays behind it.
    error = mendable(message["message"])
    error.__cause__ = report
    return error


def _exited(view: RankView, code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        hint = "; where nobody sent it, memory ran out: see dmesg there" if name == "SIGKILL" else ""
        what = f"was killed by {name} {view.place}{hint}"
    else:
        what = f"ended by itself with exit code {code} {view.place}, before its function returned"
    return "\n".join([f"{view.name} {what}", *view.tail])


def _lost(view: RankView) -> str:
    return f"{view.name} was lost {view.place}: its Spark task or its host is gone; see the executor's log"
