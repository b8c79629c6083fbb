"""Petastorm's Reader and thread pool, run on a plan of windows.

Petastorm brings the threads, the flow control and the order of results; which rows, how they are decoded and how they
are shuffled is ours. Its process pool is never used: a killed process would hang it.
"""

import queue
from collections.abc import Generator
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from rec.core.errors import RecError
from rec.data.batch import Block
from rec.data.decode import WindowDecoder
from rec.data.petastorm_compat import (
    ConcurrentVentilator,
    EmptyResultError,
    ItemProcessed,
    Reader,
    ThreadPool,
    WorkerBase,
)
from rec.data.schedule import Window

_OPEN_FILES = 16
_RESULT_TIMEOUT_S = 0.1
_VENTILATION_INTERVAL_S = 0.002


def read_blocks(
    decoder: WindowDecoder, windows: list[Window], num_workers: int
) -> Generator[tuple[Window, Block], None, None]:
    """Yield each window and its block, in the order of ``windows``.

    Closing the iterator stops the threads. An error of a worker is raised here.
    """
    if not windows:
        return
    reader = _PlanReader(decoder, windows, num_workers)
    try:
        yield from reader
    finally:
        reader.stop()
        reader.join()


class _Source(NamedTuple):
    """What Petastorm hands to its workers in the place of a dataset's path."""

    decoder: WindowDecoder
    arrow_schema: pa.Schema


class _PlanReader(Reader):
    def __init__(self, decoder: WindowDecoder, windows: list[Window], num_workers: int):
        self._windows = windows
        # Petastorm only wants to see some column here; the decoder knows the real ones.
        source = _Source(decoder, pa.schema([(decoder.layout.label.name, pa.int32())]))
        super().__init__(None, source, reader_pool=_Pool(num_workers), worker_class=_Worker, is_batched_reader=True)

    def _create_ventilator(self, *_of_row_groups: Any) -> Any:
        return ConcurrentVentilator(
            self._workers_pool.ventilate,
            [{"window": window} for window in self._windows],
            iterations=1,
            max_ventilation_queue_size=2 * self._workers_pool.workers_count + 2,
            ventilation_interval=_VENTILATION_INTERVAL_S,
        )


class _Pool(ThreadPool):
    """Petastorm's pool, with the two questions that end a read in the right order.

    It asks whether all workers are done, then whether everything was handed out: what is handed out in between is
    lost without a word. Once everything was handed out, workers that are done stay done.
    """

    _get_results_worker_id: int

    def join(self) -> None:
        super().join()
        # The pool and its ventilator hold each other; without this what threads hold would wait for the collector.
        self._workers.clear()
        self._results_queues.clear()

    def get_results(self) -> Any:
        while True:
            if self._ventilator.completed() and self.all_workers_done():
                raise EmptyResultError
            worker = self._get_results_worker_id
            try:
                result = self._results_queues[worker].get(timeout=_RESULT_TIMEOUT_S)
            except queue.Empty:
                continue
            if isinstance(result, ItemProcessed):
                self._ventilated_items_processed_by_worker[worker] += 1
                self._ventilator.processed_item()
                self._get_results_worker_id = (worker + 1) % self.workers_count
            elif isinstance(result, Exception):
                raise result
            else:
                return result


class _Worker(WorkerBase):
    def __init__(self, worker_id: int, publish: Any, args: tuple[Any, ...]):
        super().__init__(worker_id, publish, args)
        self._decoder: WindowDecoder = args[1].decoder
        # An open file is not for two threads, so each worker keeps its own.
        self._open = lru_cache(_OPEN_FILES)(self._decoder.open)

    def process(self, window: Window) -> None:
        try:
            self.publish_func((window, self._decoder.decode(window, self._open)))
        except RecError as error:
            # Published, not raised: Petastorm prints the traceback of what a worker raises.
            self.publish_func(error)

    @staticmethod
    def new_results_queue_reader() -> "_Results":
        return _Results()


class _Results:
    batched_output = True

    def read_next(self, pool: _Pool, _schema: Any, _ngram: Any) -> tuple[Window, Block]:
        try:
            return pool.get_results()
        except EmptyResultError:
            raise StopIteration from None
