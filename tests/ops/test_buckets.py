"""Buckets and the quantiles that come from them, against plain Python."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec.core.schema import Column
from rec.ops.buckets import BucketStatistics, edge
from rec.ops.fill_median import FillMedian, MedianState

COLUMNS = (
    Column(name="i", role="dense", dtype="int64"),
    Column(name="j", role="dense", dtype="int32"),
    Column(name="f", role="dense", dtype="float64"),
    Column(name="g", role="dense", dtype="float32"),
)


def bucket_of(x):
    """Return the bucket by whole numbers alone."""
    if isinstance(x, int):
        units = min(abs(x), 2**63 - 1) << 20
    else:
        size = min(abs(x), float(2**63 - 1024))
        units = int(size) << 20 if size >= 2**42 else math.floor(size * 2**20 + 0.5)
    highest = units.bit_length() - 1
    found = units if units < 256 else (highest - 7) * 128 + (units >> (highest - 7))
    return found if x > 0 else -found


def around_powers():
    """Return integers at and beside each power of two and 2^-7 of it: where a logarithm's last bit decides."""
    near = {(1 << k) + d for k in range(63) for d in (-1, 0, 1)} | {(129 << k) + d for k in range(55) for d in (-1, 0)}
    return sorted({sign * x for x in near for sign in (1, -1)} | {2**63 - 1, -(2**63), -(2**63) + 1})


def counted(spark, rows, column):
    types = ", ".join(f"{c.name} {t}" for c, t in zip(COLUMNS, ("BIGINT", "INT", "DOUBLE", "FLOAT")))
    frame = spark.createDataFrame(rows, f"day INT, {types}")
    found = FillMedian.count(frame, COLUMNS).where(f"`column` = '{column}'").collect()
    return {(row["day"], row["name"]): int(row["value"]) for row in found}


def test_every_integer_lies_in_its_bucket(spark):
    numbers = around_powers()
    expected = {}
    for x in numbers:
        expected[(0, f"bucket {bucket_of(x)}")] = expected.get((0, f"bucket {bucket_of(x)}"), 0) + 1
    assert counted(spark, [(0, x, None, None, None) for x in numbers], "i") == expected
    small = [x for x in numbers if -(2**31) <= x < 2**31]
    found = counted(spark, [(0, None, x, None, None) for x in small], "j")
    assert found == counted(spark, [(0, x, None, None, None) for x in small], "i")


def test_every_double_lies_in_its_bucket(spark):
    numbers = [math.ldexp(m, k) for k in range(-30, 70) for m in (1.0, 1 - 2**-53, 1 + 2**-52, 1.0078125, -1.9999999)]
    numbers += [0.0, -0.0, 1e300, -1e300, 5e-324]
    expected = {}
    for x in numbers:
        expected[(0, f"bucket {bucket_of(x)}")] = expected.get((0, f"bucket {bucket_of(x)}"), 0) + 1
    assert counted(spark, [(0, None, None, x, None) for x in numbers], "f") == expected


def test_missing_nan_and_infinity_are_counted_as_missing_of_their_day(spark):
    rows = [(0, None, None, math.nan, math.inf), (0, 7, None, -math.inf, None), (1, 7, 1, 2.5, 2.5)]
    seven = f"bucket {bucket_of(7)}"
    assert counted(spark, rows, "i") == {(0, "missing"): 1, (0, seven): 1, (1, seven): 1}
    for name in ("f", "g"):
        assert counted(spark, rows, name) == {(0, "missing"): 2, (1, f"bucket {bucket_of(2.5)}"): 1}


@given(st.integers(-(2**62), 2**62) | st.floats(-(2.0**62), 2.0**62))
def test_the_edge_of_a_bucket_is_at_most_one_percent_nearer_to_zero(x):
    low = edge(bucket_of(x))
    rounding = Fraction(1, 2**21)
    assert abs(low) <= abs(Fraction(x)) + rounding
    assert abs(Fraction(x)) - abs(low) <= abs(low) / 100 + rounding
    assert low * Fraction(x) >= 0
    if isinstance(x, int) and abs(x) <= 255:
        assert low == x


@given(st.lists(st.integers(-255, 255), min_size=1, max_size=60), st.integers(1, 100))
def test_quantiles_of_small_integers_are_exact(numbers, percent):
    parts = [
        BucketStatistics.from_rows([("x", f"bucket {bucket_of(x)}", 1) for x in part] + [("x", "missing", 9)])
        for part in (numbers[::2], numbers[1::2])
    ]
    found = parts[0].merge(parts[1]).quantile("x", Fraction(percent, 100))
    assert found == sorted(numbers)[math.ceil(len(numbers) * percent / 100) - 1]


@pytest.mark.parametrize(
    ("given_", "median"), [([1, 2, 3, 250], 2.0), ([-5, -5, 9], -5.0), ([2**63 - 1] * 3, 255.0 * 2**55)]
)
def test_missing_becomes_the_median(spark, given_, median):
    frame = spark.createDataFrame([(0, x) for x in [*given_, None]], "day INT, i BIGINT")
    op, columns = FillMedian(), COLUMNS[:1]
    state = op.admit(op.fit(frame, columns))
    assert state == MedianState({"i": median})
    assert [row["i"] for row in op.transform(frame, columns, state).collect()] == [*given_, int(median)]
    assert op.admit(op.fit(frame.where("false"), columns)) == MedianState({})
    assert op.admit(op.fit(frame.where("false"), columns), previous=state) == state
    assert np.isfinite(median)
