"""Numbers: exact values of trouble inputs, and what no operator may put out."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec.core.errors import ConfigError
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.ops.clip import Clip
from rec.ops.fill_missing import FillMissing
from rec.ops.log import LogOp
from rec.ops.moments import SUMS, Moments
from rec.ops.normalize import Normalize
from rec.ops.op import NoState
from rec.ops.pipeline import FittedPipeline, Pipeline

INT = FeatureSchema(columns=(Column(name="x", role="dense", dtype="int64"),))


def replay(pipeline, states, values):
    """Return what the column x of INT becomes."""
    fitted = FittedPipeline(root="", schema=INT, pipeline=pipeline, states=states, days=(0,), state_id="")
    return fitted.replay({"x": values})["x"].data_B


def test_negative_counts_are_clipped_before_the_logarithm(spark, cases):
    expected = json.loads((cases / "10_negative_ints_log/expected.json").read_text())
    pipeline = Pipeline(INT.dense >> FillMissing(0) >> Clip(min=0) >> LogOp())
    states = ((NoState(),) * 3,)
    raw = expected["I2_raw"]
    df = spark.createDataFrame([(k, x) for k, x in enumerate(raw)], "row_key BIGINT, x BIGINT")
    found = [row[1] for row in pipeline.transform(df, INT, states).orderBy("row_key").collect()]
    assert found == expected["I2_dense"]
    values = Values(np.array([x or 0 for x in raw]), np.array([x is None for x in raw]))
    assert replay(pipeline, states, values).tolist() == expected["I2_dense"]


@given(st.integers(-(2**63), 2**63 - 1))
def test_no_chain_puts_out_nan_or_infinity_for_an_integer(x):
    values = Values.present(np.array([x], np.int64))
    for chain in (
        INT.dense >> FillMissing(0),
        INT.dense >> FillMissing(0) >> LogOp(),
        INT.dense >> LogOp() >> FillMissing(0),
        INT.dense >> FillMissing(0) >> Clip(min=0) >> LogOp(),
    ):
        out = replay(Pipeline(chain), ((NoState(),) * len(chain.ops),), values)
        assert out.dtype == np.float32
        assert np.isfinite(out).all()


def test_constant_infinite_and_missing_numbers_are_scaled_to_zero(spark, cases):
    folder = cases / "21_constant_column"
    expected = json.loads((folder / "expected.json").read_text())
    with open(folder / "dense.csv", newline="") as file:
        rows = [
            [float(row[name]) if row[name] else None for name in expected["columns"]] for row in csv.DictReader(file)
        ]
    columns = tuple(Column(name=name, role="dense", dtype="float64") for name in expected["columns"])
    df = spark.createDataFrame(
        [(k, 0, *row) for k, row in enumerate(rows)], "k INT, day INT, const DOUBLE, mixed DOUBLE, ok DOUBLE"
    )
    op = Normalize()
    state = op.admit(op.fit(df, columns))
    assert state.scales["mixed"] == (expected["mixed_fit"]["mean"], expected["mixed_fit"]["std_population"])
    assert state.scales["const"] == (7.0, 0.0)
    out = op.transform(df, columns, state).orderBy("k").collect()
    for name in expected["columns"]:
        assert [row[name] for row in out] == np.array(expected[name], np.float32).tolist()


def test_moments_are_exact_over_all_of_int64(spark):
    numbers = [2**63 - 1, -(2**63), 2**53 + 1, -1, 0, 1, 7, -(2**40) - 3]
    op = Normalize()
    df = spark.createDataFrame([(0, x) for x in numbers for _ in range(5)], "day INT, x BIGINT")
    total = op.fit(df, INT.dense).total("x")
    unit = 1 << 20
    assert (total.high << 40) + total.low == 5 * sum(x * unit for x in numbers)
    squares = (total.high_high << 80) + (total.high_low << 41) + total.low_low
    assert squares == 5 * sum((x * unit) ** 2 for x in numbers)


@given(st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=50))
def test_deviation_is_the_populations(numbers):
    parts = [(x >> 20, (x & (2**20 - 1)) << 20) for x in numbers]
    sums = (len(parts), sum(h for h, _ in parts), sum(low for _, low in parts))
    products = (sum(h * h for h, _ in parts), sum(h * low for h, low in parts), sum(low * low for _, low in parts))
    moments = Moments(**dict(zip(SUMS, (*sums, *products))))
    mean = sum(numbers) / len(numbers)
    assert math.isclose(moments.mean, mean, rel_tol=1e-12, abs_tol=1e-9)
    assert math.isclose(moments.deviation, float(np.std(np.array(numbers, np.longdouble))), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(("arguments", "message"), [({}, "neither"), ({"min": 2, "max": 1}, "above max")])
def test_clip_refuses_bounds_that_do_not_hold(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Clip(**arguments)


def test_an_integer_column_refuses_a_fraction():
    with pytest.raises(ConfigError, match=r"'x' is int64 and clip.min = 0.5"):
        Clip(min=0.5).describe(INT, INT.dense, NoState())
