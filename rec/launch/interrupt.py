"""Ctrl-C: one KeyboardInterrupt, whatever the engines make of it, and a JVM that ends without a word.

A signal in the middle of a call to the JVM leaves that call's connection with half an answer: every later call of the
same thread fails, those of clean-ups too. So the session is ended from a thread of its own.
"""

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

END_SESSION_S = 10.0


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the block after Ctrl-C with KeyboardInterrupt, whatever it raises then, and the Spark session with it."""
    came = threading.Event()

    def interrupt(_signal: int, _frame: Any) -> None:
        came.set()
        # py4j logs the traceback of the call that is cut off, by the root logger.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    with _handling(interrupt):
        try:
            yield
        except BaseException:
            if not came.is_set():
                raise
        if came.is_set():
            end_session()
            logging.disable(logging.NOTSET)
            raise KeyboardInterrupt


@contextlib.contextmanager
def own_handling() -> Iterator[None]:
    """Keep the handler of SIGINT that holds now: a Spark session brings one that calls the JVM."""
    with _handling(None):
        yield


def end_session() -> None:
    """Stop the Spark session if there is one, or else its JVM."""
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is None or context._gateway is None:
        return
    stopping = threading.Thread(target=_stop, args=(context._active_spark_context,), daemon=True)
    stopping.start()
    try:
        stopping.join(END_SESSION_S)
    except KeyboardInterrupt:
        # Asked twice.
        pass
    jvm = getattr(context._gateway, "proc", None)
    if stopping.is_alive() and jvm is not None:
        jvm.kill()


def _stop(context: Any) -> None:
    # At any point of its start or end: nothing it says would tell the user more.
    with contextlib.suppress(Exception):
        context.setLogLevel("OFF")
        context.cancelAllJobs()
        context.stop()


@contextlib.contextmanager
def _handling(handler: Any) -> Iterator[None]:
    """Set a handler of SIGINT, or none, and restore the one before."""
    if threading.current_thread() is not threading.main_thread():
        # Python hands signals to the main thread alone.
        yield
        return
    kept = signal.getsignal(signal.SIGINT)
    if handler is not None:
        signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)
