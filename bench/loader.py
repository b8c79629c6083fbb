"""Rows per CPU-second of the loader beside plain pyarrow on the same rows, in one run: `python bench/loader.py`.

The anchors read the same row groups in order, on one thread: decoding alone, and decoding with every column stacked
into row-major arrays. The loader also shuffles, checks every id and null, and builds int64 ids and lengths as tensors.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake
from machine import describe

from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable
from rec.data.config import LoaderConfig
from rec.data.loader import Loader, make_loader
from rec.data.snapshot import list_files

DENSE = [f"I{k}" for k in range(1, 14)]
SPARSE = [f"C{k}" for k in range(1, 27)]
COLUMNS = ["label", *DENSE, *SPARSE]
NUM_EMBEDDINGS = 100_000
ROW_GROUP_ROWS = 65_536
FILE_ROWS = 16 * ROW_GROUP_ROWS


def write_table(uri: str, num_rows: int) -> FeatureTable:
    """Write Criteo-shaped encoded rows: heavy-headed ids, logarithms of counts."""
    generator = np.random.default_rng(0)
    for start in range(0, num_rows, FILE_ROWS):
        n = min(FILE_ROWS, num_rows - start)
        columns = {"row_key": np.arange(start, start + n), "label": generator.integers(0, 2, n, np.int32)}
        columns |= {name: np.log1p(generator.geometric(0.01, n)).astype(np.float32) for name in DENSE}
        columns |= {name: np.minimum(generator.zipf(1.2, n), NUM_EMBEDDINGS - 1).astype(np.int32) for name in SPARSE}
        rows = pa.table(columns | {"day": np.zeros(n, np.int32)})
        properties = WriterProperties(max_row_group_size=ROW_GROUP_ROWS, compression="SNAPPY")
        write_deltalake(uri, rows, mode="append", partition_by=["day"], writer_properties=properties)
    columns = [Column(name="row_key", role="row_key", dtype="int64"), Column(name="label", role="label", dtype="int32")]
    columns += [Column(name=name, role="dense", dtype="float32") for name in DENSE]
    columns += [Column(name=name, role="sparse", dtype="int32", num_embeddings=NUM_EMBEDDINGS) for name in SPARSE]
    version = -(-num_rows // FILE_ROWS) - 1
    schema = FeatureSchema(columns=tuple(columns))
    return FeatureTable(uri=uri, version=version, schema=schema, num_rows=num_rows, days=(0,), state_id="bench")


def decode(table: FeatureTable, stack: bool) -> int:
    num_rows = 0
    for file in list_files(table.uri, table.version)[1]:
        parquet = pq.ParquetFile(file.path, memory_map=True)
        for group in range(parquet.num_row_groups):
            rows = parquet.read_row_group(group, columns=COLUMNS, use_threads=False)
            num_rows += len(rows)
            if stack:
                np.stack([rows.column(name).to_numpy() for name in DENSE], axis=1)
                np.stack([rows.column(name).to_numpy() for name in SPARSE], axis=1)
    return num_rows


def load(loader: Loader) -> int:
    """Read an epoch, the next one at each call."""
    return sum(len(batch.label_B) for batch in loader)


def million_rows_per_cpu_second(read: Callable[[], int]) -> float:
    """CPU seconds count all threads of the process."""
    start = time.process_time()
    return read() / (time.process_time() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(f"{folder}/features", arguments.rows)
        reads: dict[str, Callable[[], int]] = {
            "pyarrow decode": lambda: decode(table, stack=False),
            "pyarrow decode + stack": lambda: decode(table, stack=True),
        }
        for groups in (1, 4):
            config = LoaderConfig(global_batch_size=arguments.batch, num_window_row_groups=groups)
            loader = make_loader(table, [0], config=config)
            reads[f"loader, window of {groups}"] = lambda loader=loader: load(loader)
        # In turns, so that a busy moment of the machine falls on all of them.
        turns = [[million_rows_per_cpu_second(r) for r in reads.values()] for _ in range(arguments.repeats)]
    speeds = dict(zip(reads, map(statistics.median, zip(*turns))))
    anchor = speeds["pyarrow decode + stack"]
    print(describe("petastorm", "pyarrow", "numpy", "torch"))
    print(f"{arguments.rows:,} rows, global batch {arguments.batch:,}; medians of {arguments.repeats}")
    for name, speed in speeds.items():
        print(f"{name:<24} {speed:6.2f} M rows/CPU-s  {speed / anchor:5.2f} x decode + stack")


if __name__ == "__main__":
    main()
