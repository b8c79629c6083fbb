"""Count the values of categorical columns, by day.

Columns whose keys fit beside the column's number in 64 bits are counted together: one long to group by. ::

    | tag: column number, or the number of columns for a missing value | key − smallest key of the column |

The others are grouped by (column, key). Both give the same rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rec.core.schema import Column
from rec.ops.op import Columns, Statistics, quoted, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEX32_RANGE = (0, 2**32 - 1)
_LONG_BITS = 64


@dataclass(frozen=True)
class CountStatistics(Statistics):
    """A frame of (day, column, key, value, count): a number has a ``key``, a string a ``value``, missing neither."""

    frame: "DataFrame"
    columns: Columns

    def merge(self, other: Statistics) -> "CountStatistics":
        assert isinstance(other, CountStatistics)
        return CountStatistics(_summed(self.frame.unionByName(other.frame)), self.columns)


def key_texts(df: "DataFrame", columns: Columns) -> dict[str, str]:
    """Return the SQL text of each column's key: a long for hex32 and int64, else the value; missing and empty are NULL.

    A hex32 column may come as text or as its number.
    """
    types = dict(df.dtypes)
    return {c.name: _key_text(c, types[c.name]) for c in columns}


def _key_text(column: Column, sql_type: str) -> str:
    name = quoted(column.name)
    if column.key == "hex32" and sql_type == "string":
        return f"CAST(conv({name}, 16, 10) AS BIGINT)"
    if column.key == "string":
        return f"nullif(CAST({name} AS STRING), '')"
    return f"CAST({name} AS BIGINT)"


def observed_ranges(df: "DataFrame", columns: Columns) -> dict[str, tuple[int, int]]:
    """Return (smallest, largest) key of each numeric column: one aggregate, and none where every column is hex32."""
    ranges = {c.name: HEX32_RANGE for c in columns if c.key == "hex32"}
    integers = tuple(c for c in columns if c.key == "int64")
    if not integers:
        return ranges
    keys = key_texts(df, integers)
    bounds = [f"{f}({keys[c.name]})" for c in integers for f in ("min", "max")]
    row = df.selectExpr(*bounds).collect()[0]
    # A column that is missing in every row has no key to make room for.
    found = {c.name: (row[2 * i], row[2 * i + 1]) for i, c in enumerate(integers)}
    return ranges | {name: (low or 0, high or 0) for name, (low, high) in found.items()}


def count_rows(df: "DataFrame", columns: Columns, ranges: Mapping[str, tuple[int, int]]) -> "DataFrame":
    """Return rows of (day, column, key, value, count). A column that ``ranges`` leaves out is not counted packed."""
    packed, alone = split_columns(columns, ranges)
    parts = []
    if packed:
        parts.append(_count_packed(df, packed, ranges))
    if alone:
        parts.append(_count_alone(df, alone))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def split_columns(columns: Columns, ranges: Mapping[str, tuple[int, int]]) -> tuple[Columns, Columns]:
    """Return the columns to count together and the others: dropping the widest until the rest fit."""
    candidates = sorted((c for c in columns if c.name in ranges), key=lambda c: _width(ranges[c.name]))
    while candidates and _width(ranges[candidates[-1].name]) > _key_bits(len(candidates)):
        candidates.pop()
    names = {c.name for c in candidates}
    return tuple(c for c in columns if c.name in names), tuple(c for c in columns if c.name not in names)


def _width(bounds: tuple[int, int]) -> int:
    return (bounds[1] - bounds[0]).bit_length()


def _key_bits(num_columns: int) -> int:
    # Tags run from 0 to num_columns: the last marks a missing value, with the column's number as its key.
    return _LONG_BITS - num_columns.bit_length()


def _count_packed(df: "DataFrame", columns: Columns, ranges: Mapping[str, tuple[int, int]]) -> "DataFrame":
    bits = _key_bits(len(columns))
    lows = [ranges[c.name][0] for c in columns]
    keys = key_texts(df, columns)
    packed = [
        f"coalesce(shiftleft({tag}L, {bits}) | ({keys[c.name]} - ({_long(low)})), "
        f"shiftleft({len(columns)}L, {bits}) | {tag}L)"
        for tag, (c, low) in enumerate(zip(columns, lows))
    ]
    counted = (
        df.selectExpr("day", f"explode(array({', '.join(packed)})) AS packed")
        .groupBy("day", "packed")
        .count()
        .selectExpr(
            "day",
            f"CAST(shiftrightunsigned(packed, {bits}) AS INT) AS tag",
            f"packed & {(1 << bits) - 1}L AS rest",
            "`count`",
        )
    )
    missing = f"tag = {len(columns)}"
    names = f"array({', '.join(text_literal(c.name) for c in columns)})"
    bases = f"array({', '.join(_long(low) for low in lows)})"
    return counted.selectExpr(
        "day",
        f"element_at({names}, CAST(CASE WHEN {missing} THEN rest ELSE tag END AS INT) + 1) AS `column`",
        f"CASE WHEN {missing} THEN NULL ELSE rest + element_at({bases}, least(tag, {len(columns) - 1}) + 1) END AS key",
        "CAST(NULL AS STRING) AS value",
        "`count`",
    )


def _count_alone(df: "DataFrame", columns: Columns) -> "DataFrame":
    keys = key_texts(df, columns)
    parts = [
        f"named_struct('column', {text_literal(c.name)}, 'key', {keys[c.name] if c.key != 'string' else 'NULL'}, "
        f"'value', {keys[c.name] if c.key == 'string' else 'NULL'})"
        for c in columns
    ]
    typed = [f"CAST({part} AS STRUCT<`column`: STRING, key: BIGINT, value: STRING>)" for part in parts]
    rows = df.selectExpr("day", f"explode(array({', '.join(typed)})) AS part")
    return (
        rows.selectExpr("day", "part.`column`", "part.key", "part.value")
        .groupBy("day", "column", "key", "value")
        .count()
    )


def _summed(frame: "DataFrame") -> "DataFrame":
    summed = frame.groupBy("day", "column", "key", "value").sum("count")
    return summed.withColumnRenamed("sum(count)", "count")


def _long(value: int) -> str:
    return f"{value}L"
