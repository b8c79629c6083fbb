"""Petastorm 0.13.1 beside current pyarrow: the one module that imports it.

Petastorm asks pyarrow for a filesystem layer, an HDFS client and Parquet classes that pyarrow no longer has. Nothing
of numpy or pyarrow is changed to please it: a stand-in for the first exists while Petastorm is imported, the HDFS
module of Petastorm itself stays an empty one (no table is read through it), and two Petastorm modules are given
Parquet classes for a dataset whose row groups are already planned.
"""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


def _module(name: str, *names: str) -> ModuleType:
    module = ModuleType(name)
    for attribute in names:
        setattr(module, attribute, type(attribute, (), {}))
    return module


def _import(*names: str) -> list[Any]:
    """Import Petastorm modules with the stand-ins they look for at import time."""
    absent = "pyarrow.filesystem"
    sys.modules.setdefault(
        "petastorm.hdfs.namenode", _module("petastorm.hdfs.namenode", "HdfsNamenodeResolver", "HdfsConnector")
    )
    stands_in = absent not in sys.modules
    if stands_in:
        sys.modules[absent] = _module(absent, "LocalFileSystem")
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        if stands_in:
            del sys.modules[absent]


class PlannedDataset:
    """A dataset in the shape Petastorm's Reader looks at: one piece of one row group, whose metadata name the columns.

    Which rows are read, and in what order, is the plan's alone.
    """

    metadata = common_metadata = partitions = None

    def __init__(self, source: Any, filesystem: Any = None, **_ignored: Any):
        self.fs = SimpleNamespace(open=None)
        schema = SimpleNamespace(to_arrow_schema=lambda: source.arrow_schema)
        metadata = SimpleNamespace(schema=schema, num_row_groups=1)
        self.pieces = [SimpleNamespace(path="", partition_keys=[], get_metadata=lambda: metadata)]


def _planned_piece(path: str, **_ignored: Any) -> SimpleNamespace:
    return SimpleNamespace(path=path)


(
    _reader,
    _dataset_metadata,
    thread_pool,
    _ventilator,
    _worker_base,
    _workers_pool,
) = _import(
    "petastorm.reader",
    "petastorm.etl.dataset_metadata",
    "petastorm.workers_pool.thread_pool",
    "petastorm.workers_pool.ventilator",
    "petastorm.workers_pool.worker_base",
    "petastorm.workers_pool",
)
_reader.pq = _dataset_metadata.pq = SimpleNamespace(ParquetDataset=PlannedDataset, ParquetDatasetPiece=_planned_piece)
# Idle threads look for work this often; Petastorm's millisecond costs 2 % of a core for each of them.
thread_pool.IO_TIMEOUT_INTERVAL_S = 0.02

Reader = _reader.Reader
ThreadPool = thread_pool.ThreadPool
ConcurrentVentilator = _ventilator.ConcurrentVentilator
WorkerBase = _worker_base.WorkerBase
EmptyResultError = _workers_pool.EmptyResultError
ItemProcessed = _workers_pool.VentilatedItemProcessedMessage
