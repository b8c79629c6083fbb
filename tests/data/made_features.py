"""Feature tables written by delta-rs, with a chosen number of rows in each row group; no Spark is started."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Field, Schema, convert_to_deltalake

from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable

NUM_EMBEDDINGS = 1000
SCHEMA = FeatureSchema(
    columns=(
        Column(name="row_key", role="row_key", dtype="int64"),
        Column(name="label", role="label", dtype="int32"),
        Column(name="I1", role="dense", dtype="float32"),
        Column(name="I2", role="dense", dtype="float32"),
        Column(name="C1", role="sparse", dtype="int32", num_embeddings=NUM_EMBEDDINGS),
        Column(name="C2", role="sparse", dtype="int32", num_embeddings=NUM_EMBEDDINGS),
        Column(name="C3", role="sparse", dtype="int32", num_embeddings=NUM_EMBEDDINGS),
    )
)


def encoded_rows(first: int, num_rows: int) -> pa.Table:
    """Rows whose every value tells their row key: I1 = key, I2 = -key, C1 = 3 + key mod 997, and so on."""
    key = np.arange(first, first + num_rows)
    return pa.table(
        {
            "row_key": key,
            "label": pa.array(key % 2, pa.int32()),
            "I1": key.astype(np.float32),
            "I2": -key.astype(np.float32),
            "C1": pa.array(3 + key % 997, pa.int32()),
            "C2": pa.array(3 + key * 7 % 997, pa.int32()),
            "C3": pa.array(3 + key * 11 % 997, pa.int32()),
        }
    )


def write_file(path: Path, row_groups: list[pa.Table], **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, row_groups[0].schema, **options) as writer:
        for rows in row_groups:
            writer.write_table(rows, row_group_size=max(len(rows), 1))


def open_table(root: Path, schema: FeatureSchema = SCHEMA) -> FeatureTable:
    """Make a Delta table of the Parquet files below day=N folders."""
    convert_to_deltalake(str(root), partition_by=Schema([Field("day", "integer")]), partition_strategy="hive")
    files = sorted(root.rglob("*.parquet"))
    days = sorted({int(file.parent.name.removeprefix("day=")) for file in files})
    num_rows = sum(pq.read_metadata(file).num_rows for file in files)
    return FeatureTable(uri=str(root), version=0, schema=schema, num_rows=num_rows, days=tuple(days), state_id="state")
