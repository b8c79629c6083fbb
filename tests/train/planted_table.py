"""A small feature table in Delta whose labels follow a planted model."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable

SIZES = {"C1": 4, "C2": 50, "C3": 400, "C4": 900}
SCHEMA = FeatureSchema(
    columns=(
        Column(name="row_key", role="row_key", dtype="int64"),
        Column(name="label", role="label", dtype="int32"),
        Column(name="I1", role="dense", dtype="float32"),
        Column(name="I2", role="dense", dtype="float32"),
        *(Column(name=n, role="sparse", dtype="int32", num_embeddings=s) for n, s in SIZES.items()),
        Column(name="day", role="day", dtype="int32"),
    )
)


def planted_day(day: int, num_rows: int, sign: float = 1.0) -> pa.Table:
    """Return rows whose log odds are a dense term plus an effect of each id, all times ``sign``."""
    generator = np.random.Generator(np.random.PCG64(day))
    effects = np.random.Generator(np.random.PCG64(99))
    dense = generator.normal(size=(2, num_rows)).astype(np.float32)
    ids = {n: np.minimum(generator.zipf(1.5, num_rows), s - 1).astype(np.int32) for n, s in SIZES.items()}
    odds = dense[0] + sum(effects.normal(size=s)[ids[n]] for n, s in SIZES.items())
    label = (generator.random(num_rows) < 1 / (1 + np.exp(-sign * odds))).astype(np.int32)
    columns = {"row_key": np.arange(num_rows) + (day << 40), "label": label, "I1": dense[0], "I2": dense[1], **ids}
    return pa.table({**columns, "day": np.full(num_rows, day, np.int32)})


def write_table(folder: Path, *days: pa.Table) -> FeatureTable:
    rows = pa.concat_tables(days)
    write_deltalake(str(folder), rows, partition_by=["day"])
    names = tuple(sorted(set(rows.column("day").to_pylist())))
    return FeatureTable(uri=str(folder), version=0, schema=SCHEMA, num_rows=len(rows), days=names, state_id="0" * 64)
