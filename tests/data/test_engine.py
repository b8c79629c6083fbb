"""Petastorm as the engine: no row lost, no thread left, nothing else in the process changed."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from rec.data import engine, petastorm_compat
from rec.data.config import LoaderConfig
from rec.data.loader import make_loader


class _LateVentilator:
    """Hands out its only item just as it is asked whether it has handed out everything."""

    def __init__(self, pool):
        self._pool, self._given = pool, False

    def start(self):
        pass

    def stop(self):
        pass

    def processed_item(self):
        pass

    def completed(self):
        if not self._given:
            self._given = True
            self._pool.ventilate(item="row")
        return True


class _Echo(petastorm_compat.WorkerBase):
    def process(self, item):
        self.publish_func(item)


def results_of(pool) -> list[str]:
    pool.start(_Echo, (), ventilator=_LateVentilator(pool))
    results = []
    try:
        while True:
            results.append(pool.get_results())
    except petastorm_compat.EmptyResultError:
        return results
    finally:
        pool.stop()
        pool.join()


def test_what_is_handed_out_while_the_end_is_asked_for_is_not_lost():
    assert results_of(engine._Pool(2)) == ["row"]


def test_petastorms_own_order_of_questions_loses_it():
    """The control of the test above: when this fails, the pool no longer needs its correction."""
    assert results_of(petastorm_compat.ThreadPool(2)) == []


def test_no_epoch_of_many_tiny_windows_is_short(write_table):
    table = write_table({0: [[1, 2, 3] * 20]})
    loader = make_loader(table, [0], config=LoaderConfig(global_batch_size=8, num_streams=8, num_workers=4))
    for _ in range(20):
        assert sum(len(batch.label_B) for batch in loader) == 120


@pytest.mark.parametrize("taken", [1, 3])
def test_leaving_an_epoch_early_stops_the_threads(write_table, taken):
    before = threading.active_count()
    batches = iter(make_loader(write_table({0: [[50] * 10]}), [0], config=LoaderConfig(global_batch_size=16)))
    for _ in range(taken):
        next(batches)
    assert threading.active_count() > before
    batches.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_a_workers_error_ends_the_epoch_and_its_threads(tmp_path, write_table, capfd):
    before = threading.active_count()
    table = write_table({0: [[50] * 10]})
    schema = table.schema.replace(table.schema["C2"].model_copy(update={"num_embeddings": 4}))
    loader = make_loader(
        type(table)(**{**vars(table), "schema": schema}), [0], config=LoaderConfig(global_batch_size=16)
    )
    with pytest.raises(ValueError, match="column 'C2' holds id"):
        list(loader)
    assert threading.active_count() == before
    assert "Traceback" not in capfd.readouterr().err


def test_memory_is_reused_by_the_next_epoch_and_given_back_with_the_loader(write_table):
    table = write_table({0: [[50] * 10]})
    gc.disable()
    try:
        loader = make_loader(table, [0], config=LoaderConfig(global_batch_size=16))
        blocks = []
        for _ in range(6):
            for _batch in loader:
                pass
            blocks.append(loader._decoder.free.qsize())
        # At most the blocks of one epoch's start: one for each stream, and those on their way to it.
        assert blocks[-1] <= 16 + 2 * 2 + 2
        decoder = weakref.ref(loader._decoder)
        del loader
        assert decoder() is None
    finally:
        gc.enable()


def test_numpy_and_pyarrow_stay_as_they_were():
    script = """
import sys, numpy, pyarrow, pyarrow.parquet, pyarrow.fs
modules = (numpy, pyarrow, pyarrow.lib, pyarrow.parquet)
before = [dict(vars(m)) for m in modules]
import rec.data.loader
for module, names in zip(modules, before):
    changed = [n for n, v in vars(module).items() if n not in names or names[n] is not v]
    # A submodule that someone imports for the first time is bound on its package by Python itself.
    changed = [n for n in changed if getattr(vars(module)[n], "__name__", "") != f"{module.__name__}.{n}"]
    assert not changed, (module, changed)
assert "pyarrow.filesystem" not in sys.modules
assert "pyspark" not in sys.modules
print("same")
"""
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script], capture_output=True, text=True)
    assert done.stdout == "same\n", done.stderr


def test_the_configuration_loads_no_engine():
    script = "import sys, rec.data.config; print([m for m in ('torch', 'petastorm', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
