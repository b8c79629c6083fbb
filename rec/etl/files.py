"""The root's append-only list of files: what the upper bits of a row_key mean."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rec.core.errors import ConcurrentWriteError
from rec.etl.delta import Commit, Transaction, open_table, table_version, write_frame
from rec.etl.intake import SourceFile
from rec.etl.lake import Lake
from rec.etl.scan import FILE_BITS, small_table
from rec.etl.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TRIES = 10


def file_ids(source: Source, lake: Lake, spark: "SparkSession", run_id: str) -> list[int]:
    """Return the root's id of each of the source's files, adding those it does not know.

    A file is known by its path and content: a repaired file is another one, so a row_key never changes its meaning.
    """
    uri = lake.create("files")
    for _ in range(TRIES):
        version = table_version(uri)
        rows = spark.read.format("delta").option("versionAsOf", version).load(uri).collect()
        known = {(row["path"], row["sha256"]): row["file_id"] for row in rows}
        fresh = [f for f in dict.fromkeys(source.files) if (f.path, f.sha256) not in known]
        if not fresh:
            return [known[f.path, f.sha256] for f in source.files]
        transaction = Transaction(app_id="files", version=version + 1)
        append_small(spark, lake, "files", _columns(fresh, len(known)), {"run_id": run_id}, transaction)
    raise ConcurrentWriteError(f"table {uri}: {TRIES} tries lost to other runs; run it again")


def rebased(row_key: str, ids: Sequence[int]) -> str:
    """Return SQL for a source's row_key with the root's file id in the place of the position."""
    if list(ids) == list(range(len(ids))):
        return row_key
    position = f"CAST(shiftright({row_key}, {FILE_BITS}) AS INT) + 1"
    file_id = f"element_at(array({', '.join(f'{i}L' for i in ids)}), {position})"
    return f"shiftleft({file_id}, {FILE_BITS}) | ({row_key} & {2**FILE_BITS - 1}L)"


def append_small(
    spark: "SparkSession",
    lake: Lake,
    table: str,
    columns: dict[str, Any],
    metadata: dict[str, Any],
    transaction: Transaction,
) -> Commit | None:
    """Append a few rows made here; None where another run was first. They pass through a file: no frame is local."""
    frame = small_table(spark, pa.table(columns), str(lake.staging))
    try:
        return write_frame(lake.uri(table), frame, metadata, transaction)
    except ConcurrentWriteError:
        log.info("%s: another run was first", lake.uri(table))
        return None


def _columns(fresh: Sequence[SourceFile], first_id: int) -> dict[str, pa.Array]:
    return {
        "file_id": pa.array(range(first_id, first_id + len(fresh)), pa.int64()),
        "path": pa.array([f.path for f in fresh], pa.string()),
        "sha256": pa.array([f.sha256 for f in fresh], pa.string()),
        "num_bytes": pa.array([f.num_bytes for f in fresh], pa.int64()),
        "num_lines": pa.array([f.num_lines for f in fresh], pa.int64()),
    }


def rows_of_files(root: str | Path, row_key_B: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield (path, positions in ``row_key_B``, line numbers from 1) for each file that the row keys lead to."""
    uri = Lake(root).uri("files")
    paths = {row["file_id"]: row["path"] for row in open_table(uri).to_pyarrow_table().to_pylist()}
    file_B = row_key_B >> FILE_BITS
    for file_id in np.unique(file_B):
        positions = np.flatnonzero(file_B == file_id)
        yield paths[int(file_id)], positions, row_key_B[positions] & (2**FILE_BITS - 1)
