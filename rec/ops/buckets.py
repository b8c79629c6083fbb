"""Counts of a number per bucket of at most 1 % relative width, from which quantiles come.

|x| is held in units of 2^-20 as m, rounded where x < 2^42, and an integer above. With e the place of m's highest bit,
the bucket is its 8 highest bits and e, numbered without gaps (the layout of HdrHistogram)::

    m < 256   m
    m ≥ 256   (e − 7) · 128 + (m >> (e − 7))

so a bucket is 2^-7 of its lower edge wide, and exact for integers up to 255. A negative number has the negative of its
bucket. The logarithm only proposes e, shifts decide it: every engine finds the same bucket.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from rec.core.schema import Column
from rec.ops.dense import INTEGERS, number
from rec.ops.op import Columns, Statistics, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FRACTION_BITS = 20
_PREFIX = "bucket "
_MISSING = "missing"
_LARGEST = 2**63 - 1
# The largest double below 2^63.
_LARGEST_DOUBLE = 2**63 - 1024
_WHOLE_FROM = 2**42


@dataclass(frozen=True)
class BucketStatistics(Statistics):
    """Present values by column and bucket."""

    by_column: dict[str, Counter[int]]

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[str, str, int]]) -> "BucketStatistics":
        """Read rows of (column, name, count), as the table has them."""
        found: dict[str, Counter[int]] = {}
        for column, name, count in rows:
            if name != _MISSING:
                found.setdefault(column, Counter())[int(name.removeprefix(_PREFIX))] += int(count)
        return cls(found)

    def merge(self, other: Statistics) -> "BucketStatistics":
        assert isinstance(other, BucketStatistics)
        names = {*self.by_column, *other.by_column}
        return BucketStatistics(
            {n: self.by_column.get(n, Counter()) + other.by_column.get(n, Counter()) for n in names}
        )

    def quantile(self, column: str, share: Fraction) -> Fraction:
        """Return the edge nearer to 0 of the bucket of the smallest value that ``share`` of the present ones reach.

        0 where no value is present.
        """
        counts = self.by_column.get(column, Counter())
        wanted, seen = share * counts.total(), 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            if seen >= wanted:
                return edge(bucket)
        return Fraction(0)


def edge(bucket: int) -> Fraction:
    """Return the number of a bucket that is nearest to 0."""
    size = abs(bucket)
    shift = max(size // 128 - 1, 0)
    low = Fraction(size - 128 * shift << shift, 1 << _FRACTION_BITS)
    return low if bucket >= 0 else -low


def bucket_rows(df: "DataFrame", columns: Columns) -> "DataFrame":
    """Return rows of (day, column, name of the bucket or of missing, count): one aggregate over the frame."""
    parts = ", ".join(f"named_struct('column', {text_literal(c.name)}, {_units(c)})" for c in columns)
    units = df.selectExpr("day", f"explode(array({parts})) AS part").selectExpr("day", "part.*")
    sizes = units.selectExpr("day", "`column`", "negative", "whole", "m", f"{_place_of_highest_bit('m')} AS e")
    counted = (
        sizes.selectExpr("day", "`column`", f"({_bucket()}) * CASE WHEN negative THEN -1 ELSE 1 END AS bucket")
        .groupBy("day", "column", "bucket")
        .count()
    )
    name = f"CASE WHEN bucket IS NULL THEN '{_MISSING}' ELSE concat('{_PREFIX}', CAST(bucket AS STRING)) END"
    return counted.selectExpr("day", "`column`", f"{name} AS name", "CAST(`count` AS DECIMAL(38,0)) AS value")


def _units(column: Column) -> str:
    """Return SQL text of the fields negative, whole and m; m is null where the number is missing."""
    if column.dtype in INTEGERS:
        x = f"CAST({number(column)} AS BIGINT)"
        size = f"abs(CASE WHEN {x} < -{_LARGEST}L THEN -{_LARGEST}L ELSE {x} END)"
        large, small = size, f"shiftleft({size}, {_FRACTION_BITS})"
    else:
        x = f"CAST({number(column)} AS DOUBLE)"
        size = f"abs({x})"
        large = f"CAST(CASE WHEN {size} > {_LARGEST_DOUBLE}D THEN {_LARGEST_DOUBLE}D ELSE {size} END AS BIGINT)"
        bounded = f"CASE WHEN {size} >= {_WHOLE_FROM}D THEN 0D ELSE {size} END"
        small = f"CAST(floor(({bounded}) * {1 << _FRACTION_BITS}D + 0.5D) AS BIGINT)"
    whole = f"({size} >= {_WHOLE_FROM})"
    return f"'negative', {x} < 0, 'whole', {whole}, 'm', CASE WHEN {whole} THEN {large} ELSE {small} END"


def _place_of_highest_bit(m: str) -> str:
    """Return SQL text of a guess that is off by one at most: a double's logarithm, of a number it may round up."""
    return f"CASE WHEN {m} >= 256 THEN CAST(floor(log2(CAST({m} AS DOUBLE))) AS INT) END"


def _bucket() -> str:
    def at(shift: str) -> str:
        return f"({shift}) * 128L + shiftright(m, {shift})"

    guessed = "shiftright(m, e - 7)"
    size = (
        f"CASE WHEN {guessed} < 128 THEN {at('e - 8')} WHEN {guessed} > 255 THEN {at('e - 6')} ELSE {at('e - 7')} END"
    )
    return f"CASE WHEN m < 256 THEN m ELSE {size} END + CASE WHEN whole THEN {128 * _FRACTION_BITS}L ELSE 0L END"
