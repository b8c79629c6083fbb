"""Between a vocabulary as rows of (column, id, value, key, …) and a vocabulary as state."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rec.core.ids import first_vocabulary_id
from rec.core.keys import KeyKind
from rec.ops.admission import VOCABULARY_SCHEMA
from rec.ops.op import Columns, text_literal
from rec.ops.vocabulary import ColumnVocabulary, NumberKeys, TextKeys, VocabularyState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Ids of one digest: as many rows of a vocabulary as one task sorts in memory without thought.
_DIGEST_IDS = 65_536


def entries_frame(spark: "SparkSession", state: VocabularyState) -> "DataFrame":
    """Return the entries that encode: from the state's table at its version, else from its arrays."""
    if state.table is None:
        rows = [row for name, column in state.columns.items() for row in _rows(name, column)]
        return spark.createDataFrame(rows, VOCABULARY_SCHEMA)
    table = spark.read.format("delta").option("versionAsOf", state.table.version).load(state.table.uri)
    return table.where("retired_state IS NULL")


def summarize(entries: "DataFrame", columns: Columns) -> VocabularyState:
    """Return sizes and digests of the columns, computed where the rows are; the arrays are left out.

    The digest is the sha256 of the digests of each run of 65,536 ids, which are of the sorted lines (id, value in hex).
    """
    lines = entries.selectExpr(
        "`column`",
        f"CAST(floor((id - {first_vocabulary_id()}) / {_DIGEST_IDS}) AS BIGINT) AS part",
        "concat(lpad(CAST(id AS STRING), 20, '0'), ' ', hex(value), ' ', retired_state IS NULL) AS line",
        "id",
    )
    named = lines.groupBy("column", "part").agg({"line": "collect_list", "id": "max"})
    digests = named.selectExpr(
        "`column`",
        "part",
        "`max(id)` AS last_id",
        "sha2(array_join(sort_array(`collect_list(line)`), '\\n'), 256) AS digest",
    )
    found: dict[str, list[tuple[int, int, str]]] = {c.name: [] for c in columns}
    for name, part, last_id, digest in digests.collect():
        found[name].append((part, last_id, digest))
    return VocabularyState({c.name: _summary(c.key or "string", sorted(found[c.name])) for c in columns})


def _summary(kind: Any, parts: list[tuple[int, int, str]]) -> ColumnVocabulary:
    digest = hashlib.sha256("".join(digest for _, _, digest in parts).encode()).hexdigest()
    num_values = parts[-1][1] - first_vocabulary_id() + 1 if parts else 0
    return ColumnVocabulary(kind, num_values, digest)


def with_arrays(state: VocabularyState, entries: "DataFrame", names: Sequence[str]) -> VocabularyState:
    """Return the state with the arrays of the named columns, collected here; the others stay rows of a table."""
    if not names:
        return state
    cases = " ".join(f"WHEN {text_literal(name)} THEN {place}" for place, name in enumerate(names))
    rows = entries.selectExpr(
        f"CASE `column` {cases} END AS place", "key", "CAST(value AS BINARY) AS value", "id", "retired_state"
    )
    table = rows.where("place IS NOT NULL AND retired_state IS NULL").drop("retired_state").toArrow()
    place_R = table.column("place").to_numpy()
    filled = {}
    for place, name in enumerate(names):
        column = state.columns[name]
        mine = table.take(np.flatnonzero(place_R == place))
        filled[name] = dataclasses.replace(column, keys=sorted_keys(column.kind, mine))
    return dataclasses.replace(state, columns={**state.columns, **filled})


def sorted_keys(kind: KeyKind, table: Any) -> NumberKeys | TextKeys:
    """Return the arrays of one column from an Arrow table of its entries: ``key``, ``value`` in binary, ``id``."""
    id_V = table.column("id").to_numpy()
    if kind == "string":
        return TextKeys.from_values(table.column("value").to_pylist(), id_V)
    key_V = table.column("key").to_numpy()
    order = np.argsort(key_V)
    return NumberKeys(key_V[order].astype(np.int64), id_V[order].astype(np.int64))


def _rows(name: str, column: ColumnVocabulary) -> list[tuple]:
    assert column.keys is not None, f"{name}: neither a table nor arrays"
    pairs: list[tuple[int | None, str]]
    if isinstance(column.keys, TextKeys):
        pairs = [(None, value.decode()) for value in column.keys.values()]
    elif column.kind == "hex32":
        pairs = [(key, f"{key:08x}") for key in column.keys.keys_V.tolist()]
    else:
        pairs = [(key, str(key)) for key in column.keys.keys_V.tolist()]
    ids = column.keys.ids_V.tolist()
    return [(name, id_, value, key, 0, None, None, None, None) for (key, value), id_ in zip(pairs, ids)]
