"""Exact sums of a number and its square, by day.

A number x is held in fixed point: q = round(x · 2^20), split as q = high · 2^40 + low with 0 ≤ low ≤ 2^40. The sums
of 1, high, low, high², high·low and low² each fit DECIMAL(38, 0) for 2^40 rows of any int64, and integers add up to
the same in any order; so mean and deviation do not depend on the partitioning. x beyond ±2^63 counts as ±2^63.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, Any

from rec.core.schema import Column
from rec.ops.dense import INTEGERS, bounded_double, number
from rec.ops.op import Columns, Statistics, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUMS = ("count", "high", "low", "high_high", "high_low", "low_low")
_FRACTION_BITS = 20
_LOW_BITS = 40
_ROOT_BITS = 64
_TERMS = (
    "CASE WHEN high IS NULL THEN 0L ELSE 1L END AS `count`",
    "CAST(high AS DECIMAL(28,0)) AS high",
    "CAST(low AS DECIMAL(28,0)) AS low",
    "CAST(CAST(high AS DECIMAL(19,0)) * CAST(high AS DECIMAL(18,0)) AS DECIMAL(28,0)) AS high_high",
    "CAST(CAST(high AS DECIMAL(19,0)) * CAST(low AS DECIMAL(18,0)) AS DECIMAL(28,0)) AS high_low",
    "CAST(CAST(low AS DECIMAL(19,0)) * CAST(low AS DECIMAL(18,0)) AS DECIMAL(28,0)) AS low_low",
)


@dataclass(frozen=True)
class Moments:
    """The sums of one column, as integers."""

    count: int = 0
    high: int = 0
    low: int = 0
    high_high: int = 0
    high_low: int = 0
    low_low: int = 0

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(*[getattr(self, name) + getattr(other, name) for name in SUMS])

    @property
    def mean(self) -> float:
        return float(Fraction(self._sum, self.count << _FRACTION_BITS)) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """Return the population deviation, in integers to the last step."""
        if not self.count:
            return 0.0
        squares = (self.high_high << 2 * _LOW_BITS) + (self.high_low << _LOW_BITS + 1) + self.low_low
        root = isqrt((self.count * squares - self._sum**2) << 2 * _ROOT_BITS)
        return float(Fraction(root, self.count << _ROOT_BITS + _FRACTION_BITS))

    @property
    def _sum(self) -> int:
        return (self.high << _LOW_BITS) + self.low


@dataclass(frozen=True)
class MomentStatistics(Statistics):
    """Moments by (day, column)."""

    by_day: dict[tuple[int, str], Moments]

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[Any]]) -> "MomentStatistics":
        """Read rows of (day, column, name of the sum, sum)."""
        found: dict[tuple[int, str], dict[str, int]] = {}
        for day, column, name, value in rows:
            sums = found.setdefault((day, column), dict.fromkeys(SUMS, 0))
            sums[name] += int(value)
        return cls({key: Moments(**sums) for key, sums in found.items()})

    def merge(self, other: Statistics) -> "MomentStatistics":
        assert isinstance(other, MomentStatistics)
        keys = {*self.by_day, *other.by_day}
        return MomentStatistics({k: self.by_day.get(k, Moments()) + other.by_day.get(k, Moments()) for k in keys})

    def total(self, column: str) -> Moments:
        return sum((m for (_, name), m in self.by_day.items() if name == column), Moments())


def moment_rows(df: "DataFrame", columns: Columns) -> "DataFrame":
    """Return rows of (day, column, name of the sum, sum): one aggregate over the frame."""
    parts = ", ".join(f"named_struct('column', {text_literal(c.name)}, {_high_and_low(c)})" for c in columns)
    sums = (
        df.selectExpr("day", f"explode(array({parts})) AS part")
        .selectExpr("day", "part.`column`", "part.high", "part.low")
        .selectExpr("day", "`column`", *_TERMS)
        .groupBy("day", "column")
        .sum(*SUMS)
    )
    pairs = ", ".join(f"'{name}', CAST(coalesce(`sum({name})`, 0) AS DECIMAL(38,0))" for name in SUMS)
    return sums.selectExpr("day", "`column`", f"stack({len(SUMS)}, {pairs}) AS (name, value)")


def _high_and_low(column: Column) -> str:
    if column.dtype in INTEGERS:
        x = f"CAST({number(column)} AS BIGINT)"
        return f"'high', shiftright({x}, 20), 'low', shiftleft({x} & 1048575L, 20)"
    x = f"({bounded_double(column)})"
    high = f"floor({x} / 1048576D)"
    low = f"floor(({x} - {high} * 1048576D) * 1048576D + 0.5D)"
    return f"'high', CAST({high} AS BIGINT), 'low', CAST({low} AS BIGINT)"
