"""Which values enter the vocabulary, and with which id: as SQL on frames, so that no vocabulary is ever collected.

Ids follow (count descending, key ascending) within what one fit admits. A global sort is not needed: values are laid
in cells of equal (count, high bits of the key), cells are ordered by a small aggregate, and a value's id is its
cell's offset plus its place in the cell. Every step is a function of the counts alone, whatever the partitioning.
"""

from typing import TYPE_CHECKING

from rec.core.ids import first_vocabulary_id
from rec.ops.op import Columns, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VOCABULARY_SCHEMA = (
    "`column` STRING, id BIGINT, value STRING, key BIGINT, `count` BIGINT, first_day INT, last_day INT, "
    "admitted_state STRING, retired_state STRING"
)


def hex_text(key: str) -> str:
    """Return SQL for the hex32 value of a key, given as SQL."""
    return f"lpad(lower(hex({key})), 8, '0')"


_VALUE_OF_KEY = {"hex32": hex_text("key"), "int64": "CAST(key AS STRING)"}
_LAST_RESERVED = first_vocabulary_id() - 1
# High bits of a key, in the order of keys: they cut the values of one count into up to 256 cells.
_CELL_OF_KEY = {"hex32": "shiftright(key, 24)", "int64": "shiftright(key, 56)"}


def admit_values(
    counts: "DataFrame", known: "DataFrame | None", columns: Columns, freq_threshold: int, max_size: int | None
) -> "DataFrame":
    """Return the whole vocabulary of the columns after a fit, ``admitted_state`` NULL in what this fit admits.

    ``counts`` are (day, column, key, value, count) of the fitted days, ``known`` the vocabulary so far.
    """
    totals = _totals(counts, columns)
    candidates = totals.where(f"`count` >= {freq_threshold}")
    if known is None:
        return _with_ids(candidates, columns, None, max_size)
    known = known.where(f"`column` IN ({', '.join(text_literal(c.name) for c in columns)})")
    candidates = candidates.join(known.select("column", "value"), ["column", "value"], "left_anti")
    sizes = known.groupBy("column").max("id").withColumnRenamed("max(id)", "last_id")
    return _kept(known, totals).unionByName(_with_ids(candidates, columns, sizes, max_size))


def _totals(counts: "DataFrame", columns: Columns) -> "DataFrame":
    """Return (column, key, value, count, first_day, last_day), missing left out, ``value`` set in every row."""
    present = counts.where("key IS NOT NULL OR value IS NOT NULL")
    spread = present.selectExpr("`column`", "key", "value", "`count`", "day AS first_day", "day AS last_day")
    totals = spread.groupBy("column", "key", "value").agg({"count": "sum", "first_day": "min", "last_day": "max"})
    return totals.selectExpr(
        "`column`",
        "key",
        f"{_by_kind(columns, _VALUE_OF_KEY, 'value')} AS value",
        "`sum(count)` AS `count`",
        "`min(first_day)` AS first_day",
        "`max(last_day)` AS last_day",
    )


def _with_ids(
    candidates: "DataFrame", columns: Columns, sizes: "DataFrame | None", max_size: int | None
) -> "DataFrame":
    rows = candidates.selectExpr("*", f"{_by_kind(columns, _CELL_OF_KEY, '0L')} AS cell")
    cells = rows.groupBy("column", "count", "cell").count().toDF("column", "count", "cell", "in_cell")
    before = "sum(in_cell) OVER (PARTITION BY `column` ORDER BY `count` DESC, cell) - in_cell AS before"
    cells = cells.selectExpr("`column`", "`count`", "cell", before)
    if sizes is None:
        cells = cells.selectExpr("*", f"{_LAST_RESERVED}L AS last_id")
    else:
        last_id = f"coalesce(last_id, {_LAST_RESERVED}L) AS last_id"
        cells = cells.join(sizes, "column", "left").selectExpr("`column`", "`count`", "cell", "before", last_id)
    place = "row_number() OVER (PARTITION BY `column`, `count`, cell ORDER BY key, value)"
    placed = rows.selectExpr("*", f"{place} AS place").join(cells, ["column", "count", "cell"])
    entries = placed.selectExpr(
        "`column`",
        "last_id + before + place AS id",
        "value",
        "key",
        "`count`",
        "first_day",
        "last_day",
        "CAST(NULL AS STRING) AS admitted_state",
        "CAST(NULL AS STRING) AS retired_state",
    )
    return entries if max_size is None else entries.where(f"id < {first_vocabulary_id() + max_size}L")


def _kept(known: "DataFrame", totals: "DataFrame") -> "DataFrame":
    """Return the known entries with their counts over the fitted days; a value's id and first day never change."""
    fresh = totals.selectExpr("`column`", "value", "`count` AS fresh_count", "last_day AS fresh_last_day")
    return known.join(fresh, ["column", "value"], "left").selectExpr(
        "`column`",
        "id",
        "value",
        "key",
        "coalesce(fresh_count, 0L) AS `count`",
        "first_day",
        "coalesce(fresh_last_day, last_day) AS last_day",
        "admitted_state",
        "retired_state",
    )


def _by_kind(columns: Columns, texts: dict[str, str], otherwise: str) -> str:
    """Return SQL text that depends on the key kind of the row's column."""
    cases = []
    for kind, text in texts.items():
        names = [text_literal(c.name) for c in columns if c.key == kind]
        if names:
            cases.append(f"WHEN `column` IN ({', '.join(names)}) THEN {text}")
    return f"CASE {' '.join(cases)} ELSE {otherwise} END" if cases else otherwise
