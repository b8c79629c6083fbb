"""A feature table of random rows whose labels lean on one dense and one sparse column."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable

DENSE = ("I1", "I2", "I3")
SPARSE = {"C1": 5, "C2": 60, "C3": 700, "C4": 3000}
DAYS = (0, 1, 2)
SCHEMA = FeatureSchema(
    columns=(
        Column(name="row_key", role="row_key", dtype="int64"),
        Column(name="label", role="label", dtype="int32"),
        *(Column(name=n, role="dense", dtype="float32") for n in DENSE),
        *(Column(name=n, role="sparse", dtype="int32", num_embeddings=s) for n, s in SPARSE.items()),
        Column(name="day", role="day", dtype="int32"),
    )
)


def make_table(folder: Path, num_rows: int = 4000) -> FeatureTable:
    """Write ``num_rows`` rows, half of them in day 0, and return the table."""
    generator = np.random.Generator(np.random.PCG64(7))
    dense = generator.normal(size=(len(DENSE), num_rows)).astype(np.float32)
    ids = {n: generator.integers(0, size, num_rows, dtype=np.int32) for n, size in SPARSE.items()}
    odds = 1.5 * dense[0] + generator.normal(size=SPARSE["C2"])[ids["C2"]] - 0.5
    columns = {
        "row_key": np.arange(num_rows),
        "label": (generator.random(num_rows) < 1 / (1 + np.exp(-odds))).astype(np.int32),
        **dict(zip(DENSE, dense)),
        **ids,
        "day": np.repeat(np.array(DAYS, np.int32), [num_rows // 2, num_rows // 4, num_rows // 4]),
    }
    write_deltalake(str(folder), pa.table(columns), partition_by=["day"])
    return FeatureTable(uri=str(folder), version=0, schema=SCHEMA, num_rows=num_rows, days=DAYS, state_id="0" * 64)
