"""Generated rows as an encoded feature table, without Spark: ids by count, below the threshold unseen."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import WriterProperties, write_deltalake

from rec.core.ids import MISSING, NUM_RESERVED, UNSEEN
from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable
from rec.datasets.rows import CHUNK_ROWS, RowGenerator, Rows

FREQ_THRESHOLD = 15


def click_rows(day: int, num_rows: int, seed: int = 1) -> Rows:
    generator = RowGenerator(seed, day)
    chunks = [generator.chunk(k) for k in range(-(-num_rows // CHUNK_ROWS))]
    return Rows(*(np.concatenate(parts, axis=-1) for parts in zip(*(vars(c).values() for c in chunks)))).head(num_rows)


def write_encoded(root: Path, days: dict[int, Rows], train: tuple[int, ...]) -> FeatureTable:
    """Write each day's rows; row_key is day · 2^40 + line. The vocabulary is that of the train days."""
    columns, schema = _encode(days, train)
    for day, rows in days.items():
        key = day * 2**40 + 1 + np.arange(len(rows.label_B))
        table = pa.table({"row_key": key, "label": rows.label_B.astype(np.int32), **columns[day]})
        table = table.append_column("day", pa.array(np.full(len(key), day, np.int32)))
        properties = WriterProperties(max_row_group_size=16_384)
        write_deltalake(str(root), table, mode="append", partition_by=["day"], writer_properties=properties)
    num_rows = sum(len(rows.label_B) for rows in days.values())
    version = len(days) - 1
    return FeatureTable(
        uri=str(root), version=version, schema=schema, num_rows=num_rows, days=tuple(days), state_id="made"
    )


def _encode(days: dict[int, Rows], train: tuple[int, ...]) -> tuple[dict[int, dict[str, np.ndarray]], FeatureSchema]:
    columns: dict[int, dict[str, np.ndarray]] = {day: {} for day in days}
    schema = [Column(name="row_key", role="row_key", dtype="int64"), Column(name="label", role="label", dtype="int32")]
    for j in range(13):
        for day, rows in days.items():
            value = np.where(rows.dense_missing_DB[j], 0, np.maximum(rows.value_DB[j], 0))
            columns[day][f"I{j + 1}"] = np.log1p(value).astype(np.float32)
        schema.append(Column(name=f"I{j + 1}", role="dense", dtype="float32"))
    for c in range(26):
        seen = np.concatenate([days[d].key_FB[c][~days[d].sparse_missing_FB[c]] for d in train])
        keys, counts = np.unique(seen, return_counts=True)
        keys, counts = keys[counts >= FREQ_THRESHOLD], counts[counts >= FREQ_THRESHOLD]
        ids = np.empty(len(keys), np.int32)
        ids[np.lexsort((keys, -counts))] = NUM_RESERVED + np.arange(len(keys))
        for day, rows in days.items():
            place = np.minimum(np.searchsorted(keys, rows.key_FB[c]), len(keys) - 1)
            known = np.where(keys[place] == rows.key_FB[c], ids[place], UNSEEN)
            columns[day][f"C{c + 1}"] = np.where(rows.sparse_missing_FB[c], MISSING, known).astype(np.int32)
        schema.append(Column(name=f"C{c + 1}", role="sparse", dtype="int32", num_embeddings=NUM_RESERVED + len(keys)))
    return columns, FeatureSchema(columns=tuple(schema))
