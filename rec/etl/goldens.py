"""Rows encoded by Spark for others to reproduce: real ones, and made ones that reach every edge of the encoding."""

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from rec.core.ids import first_vocabulary_id
from rec.core.keys import KeyKind
from rec.core.schema import Column
from rec.etl.delta import TableColumn, create_table, partitions, write_frame
from rec.etl.lake import Lake
from rec.etl.scan import small_table
from rec.etl.source import Source
from rec.ops.dense import INTEGERS, SQL_TYPES
from rec.ops.entries import entries_frame
from rec.ops.op import quoted, text_literal
from rec.ops.pipeline import FittedPipeline
from rec.ops.vocabulary import VocabularyState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

NUM_GOLDENS = 320
_INTEGERS = (None, 0, 1, -1, -2, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
# No larger than int64's ends: a network's sums of numbers near float32's end are infinite.
_NUMBERS = (None, "0", "0.5", "-1.5", "1e-300", str(2**63), str(-(2**63)), "16777217")
_KEYS: dict[KeyKind, tuple[str | None, ...]] = {
    "hex32": (None, "00000000", "7fffffff", "80000000", "ffffffff", "1e100000"),
    "int64": (None, "0", "-1", str(2**63 - 1), str(-(2**63)), str(2**57), str(2**58)),
    "string": (None, "", " ", "'", "\\", "ä", "日本", "no value of any training day"),
}
# Spread over the 32-bit numbers; a vocabulary that holds all of them is not of this world.
_UNSEEN = [f"{(k * 2654435761 + 12345) % 2**32:08x}" for k in range(64)]
_MADE = 64


def write_goldens(source: Source, fitted: FittedPipeline, lake: Lake, run_id: str) -> None:
    """Write the goldens of the fitted state, unless the table ``goldens`` has them.

    Columns: ``golden_id``, the raw value ``raw_<name>`` and the encoded ``<name>`` of each feature, ``state_id``.
    """
    spark, uri = source.frame.sparkSession, lake.uri("goldens")
    create_table(uri, _columns(fitted), ("state_id",))
    if any(p["state_id"] == fitted.state_id for p in partitions(uri)):
        return
    schema = fitted.pipeline.select(fitted.schema)
    features = (*schema.dense, *schema.sparse)
    num_real = min(NUM_GOLDENS - _MADE, sum(row.rows for row in source.ledger.rows))
    numbered = source.frame.limit(num_real).selectExpr(
        "CAST(row_number() OVER (ORDER BY row_key) AS INT) - 1 AS golden_id", *[_text(c) for c in features]
    )
    made = small_table(spark, _made(fitted, spark, lake, num_real), str(lake.staging))
    raw = numbered.unionByName(made).selectExpr(
        "golden_id", "CAST(golden_id AS BIGINT) AS row_key", *[t for c in features for t in (_typed(c), _kept(c))]
    )
    encoded = fitted.transform(raw).drop("row_key").selectExpr("*", f"{text_literal(fitted.state_id)} AS state_id")
    metadata = {"run_id": run_id, "state_id": fitted.state_id}
    where = f"state_id = {text_literal(fitted.state_id)}"
    write_frame(uri, encoded.coalesce(1), metadata, replace_where=where, merge_schema=True)


def _columns(fitted: FittedPipeline) -> list[TableColumn]:
    schema, encoded = fitted.pipeline.select(fitted.schema), fitted.encoded_schema
    raw = [
        TableColumn(f"raw_{c.name}", "STRING" if c.role == "sparse" else SQL_TYPES[c.dtype])
        for c in (*schema.dense, *schema.sparse)
    ]
    features = [TableColumn(c.name, SQL_TYPES[c.dtype]) for c in (*encoded.dense, *encoded.sparse)]
    return [TableColumn("golden_id", "INT"), *raw, *features, TableColumn("state_id", "STRING")]


def _text(column: Column) -> str:
    return f"CAST({quoted(column.name)} AS STRING) AS {quoted(column.name)}"


def _typed(column: Column) -> str:
    return f"CAST({quoted(column.name)} AS {SQL_TYPES[column.dtype]}) AS {quoted(column.name)}"


def _kept(column: Column) -> str:
    dtype = "STRING" if column.role == "sparse" else SQL_TYPES[column.dtype]
    return f"CAST({quoted(column.name)} AS {dtype}) AS {quoted('raw_' + column.name)}"


def _made(fitted: FittedPipeline, spark: "SparkSession", lake: Lake, first_id: int) -> pa.Table:
    """Return made rows as text: each column runs through its edges, each at its own pace."""
    schema = fitted.pipeline.select(fitted.schema)
    edges = _edges(fitted, spark, lake)
    num_rows = max(NUM_GOLDENS - first_id, max(len(values) for values in edges.values()))
    columns = {"golden_id": pa.array(range(first_id, first_id + num_rows), pa.int32())}
    for place, column in enumerate((*schema.dense, *schema.sparse)):
        values = edges[column.name]
        given = [values[(row + (place if row >= len(values) else 0)) % len(values)] for row in range(num_rows)]
        columns[column.name] = pa.array(given, pa.string())
    return pa.table(columns)


def _edges(fitted: FittedPipeline, spark: "SparkSession", lake: Lake) -> dict[str, list[str | None]]:
    schema = fitted.pipeline.select(fitted.schema)
    edges: dict[str, list[str | None]] = {}
    for column in schema.dense:
        is_integer = column.dtype in INTEGERS
        edges[column.name] = [v if v is None else str(v) for v in (_INTEGERS if is_integer else _NUMBERS)]
    kinds = {c.name: c.key or "string" for c in schema.sparse}
    unseen = {name: [_unseen(kinds[name], text) for text in _UNSEEN] for name in kinds}
    held = _held(fitted, spark, unseen)
    for name, kind in kinds.items():
        values = [value for value, _ in sorted(held[name].items(), key=lambda item: item[1])]
        absent = next(value for value in unseen[name] if value not in held[name])
        edges[name] = [*_KEYS[kind], absent, *values]
    return edges


def _unseen(kind: KeyKind, text: str) -> str:
    return {"hex32": text, "int64": str(int(text, 16) + 2**40), "string": f"unseen {text}"}[kind]


def _held(fitted: FittedPipeline, spark: "SparkSession", unseen: dict[str, list[str]]) -> dict[str, dict[str, int]]:
    """Return {column: {value: id}} of its first and last entry, and of those of ``unseen`` that have one."""
    found: dict[str, dict[str, int]] = {name: {} for name in unseen}
    for state in (state for row in fitted.states for state in row if isinstance(state, VocabularyState)):
        tests = [
            f"(`column` = {text_literal(name)} AND (id IN ({first_vocabulary_id()}, {c.num_embeddings - 1}) "
            f"OR value IN ({', '.join(map(text_literal, unseen[name]))})))"
            for name, c in state.columns.items()
        ]
        for row in entries_frame(spark, state).where(" OR ".join(tests)).collect():
            found[row["column"]][row["value"]] = row["id"]
    return found
