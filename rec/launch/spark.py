"""Ranks inside Spark executors: started by Horovod, watched from the driver."""

import contextlib
import logging
import os
import pickle
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import horovod.spark
from horovod.runner import gloo_run
from horovod.runner.http.http_server import RendezvousServer
from horovod.spark.driver import job_id

from rec.core.errors import RankError, TrainingError
from rec.launch.config import LaunchConfig
from rec.launch.rank import function_reference
from rec.launch.supervisor import supervise
from rec.launch.watchdog import OnBeat, Watchdog
from rec.launch.wire import Order

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_SLOTS_S = 30.0


def run_ranks(
    spark: "SparkSession",
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    *,
    num_proc: int,
    config: LaunchConfig | None = None,
    on_beat: OnBeat | None = None,
) -> list[Any]:
    """Return ``function(ranks, *arguments)`` of each of ``num_proc`` ranks, by rank.

    The function is imported by name on the executors; arguments and result are pickled. Raises RankError when a rank
    raises, hangs, is killed or is lost; a rank's RecError is raised as it is. No process of a failed run is left.
    """
    config = config or LaunchConfig()
    _require_main_thread()
    program = {
        "function": function_reference(function),
        "arguments": pickle.dumps(tuple(arguments)),
        "start_s": config.start_s,
        "phase_s": config.phase_s,
    }
    require_slots(spark.sparkContext, num_proc)
    with _signals_restored(), _watchdog(spark.sparkContext, num_proc, config) as dog:
        dog.on_beat = on_beat
        results, error = _run_horovod(spark.sparkContext, num_proc, config, _order(dog, pickle.dumps(program), config))
    if dog.signal:
        # Horovod's handler took it; the caller's own handler is back now.
        signal.raise_signal(dog.signal)
    if dog.verdict:
        raise dog.verdict
    if error:
        raise RankError(_launch_fault(error, dog, config)) from error
    return [pickle.loads(r) for r in results]


def require_slots(context: "SparkContext", num_proc: int) -> None:
    """Raise TrainingError when Spark cannot run ``num_proc`` tasks at once: the ranks would wait for each other."""
    if num_proc < 1:
        raise TrainingError(f"num_proc={num_proc}: training needs at least one rank; set it to 1 or more")
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    deadline = time.monotonic() + _SLOTS_S
    while (num_slots := _num_slots(context)) < num_proc:
        # The slots of local[N] are all there from the start; executors may still be on their way.
        in_process = re.match(r"local(\[|$)", str(context.master)) is not None
        if in_process or time.monotonic() > deadline:
            remedy = f"set spark.master to local[{num_proc}]" if in_process else "add executors or cores"
            raise TrainingError(
                f"num_proc={num_proc}, but spark.master={context.master} has {num_slots} task slots; "
                f"{remedy} or lower num_proc to {num_slots}"
            )
        time.sleep(1.0)


def _num_slots(context: "SparkContext") -> int:
    scala = context._jsc.sc()
    return scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile())


def _one_machine(context: "SparkContext") -> bool:
    return str(context.master).startswith("local")


def _require_main_thread() -> None:
    if threading.current_thread() is not threading.main_thread():
        name = threading.current_thread().name
        raise TrainingError(
            f"ranks are started from thread {name!r}; Horovod sets signal handlers, which Python allows in the main "
            "thread only: call from there"
        )


def _order(dog: Watchdog, program: bytes, config: LaunchConfig) -> Order:
    return Order(
        address=dog.address,
        token=dog.token,
        program=program,
        num_threads=config.num_threads,
        python_path=os.environ.get("PYTHONPATH", ""),
    )


def _watchdog(context: "SparkContext", num_proc: int, config: LaunchConfig) -> Watchdog:
    conf = context.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    # Horovod numbers its job groups; this is the one it will take next.
    group = f"horovod.spark.run.{job_id.JOB_ID + 1}"
    bind = conf.get("spark.driver.bindAddress") or host
    return Watchdog(bind, host, num_proc, config, lambda: context.cancelJobGroup(group))


def _run_horovod(
    context: "SparkContext", num_proc: int, config: LaunchConfig, order: Order
) -> tuple[list[bytes], Exception | None]:
    loopback = {"lo0"} if sys.platform == "darwin" else {"lo"}
    with _rendezvous_closed(), _threads_quiet():
        try:
            results = horovod.spark.run(
                supervise,
                args=(order,),
                num_proc=num_proc,
                use_gloo=True,
                verbose=0,
                start_timeout=int(config.start_s),
                nics=loopback if _one_machine(context) else None,
                # Executors start Spark's Python; so must Horovod, and not the driver's path of it.
                executable=context.pythonExec,
                env={},
            )
            return results, None
        except Exception as error:
            return [], error


def _launch_fault(error: Exception, dog: Watchdog, config: LaunchConfig) -> str:
    text = " ".join(str(error).split())
    ranks = dog.unheard()
    if ranks:
        return (
            f"ranks {ranks} did not report to {dog.address[0]}:{dog.address[1]} within start_s={config.start_s:g}: "
            f"other Spark jobs may hold the task slots, or executors cannot reach the driver ({text})"
        )
    return f"Horovod ended the run: {text}"


@contextlib.contextmanager
def _signals_restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _threads_quiet() -> Iterator[None]:
    """Log what Horovod's threads raise when a run is cancelled, instead of a traceback on stderr."""
    before = threading.excepthook
    threading.excepthook = lambda a: logger.debug("thread %s: %s", a.thread and a.thread.name, a.exc_value)
    try:
        yield
    finally:
        threading.excepthook = before


@contextlib.contextmanager
def _rendezvous_closed() -> Iterator[None]:
    """Close the rendezvous server of a run: Horovod starts one in the driver and leaves its port open."""
    servers: list[RendezvousServer] = []

    class Recorded(RendezvousServer):
        def start(self, *arguments: Any, **options: Any) -> int:
            servers.append(self)
            return super().start(*arguments, **options)

    gloo_run.RendezvousServer = Recorded
    try:
        yield
    finally:
        gloo_run.RendezvousServer = RendezvousServer
        for server in servers:
            server.stop()
            server._httpd.server_close()
