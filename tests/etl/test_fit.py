"""Fitting on days of a source: what is counted, from which days, and what a second fit does."""

import hashlib
import json

import numpy as np
import pytest
from make_source import SCHEMA, make_pipeline, make_rows, make_source

from rec.core.errors import DayError
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.etl import fit, lake
from rec.etl.delta import table_version
from rec.etl.fit import fit_features
from rec.etl.lake import Lake
from rec.etl.sink import write_features
from rec.etl.vocabulary import with_all_arrays
from rec.ops.categorify import Categorify
from rec.ops.fill_median import FillMedian
from rec.ops.fill_missing import FillMissing
from rec.ops.normalize import Normalize
from rec.ops.pipeline import FittedPipeline, Pipeline


def scaled_pipeline():
    return Pipeline(SCHEMA.dense >> FillMissing(0) >> Normalize(), SCHEMA.sparse >> Categorify(freq_threshold=2))


def states_of(fitted):
    return [[state.canonical() for state in row] for row in fitted.states]


@pytest.fixture(scope="module")
def days():
    return {day: make_rows(day, 120) for day in range(3)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("fit") / "lake"


@pytest.fixture(scope="module")
def fitted(spark, root, days):
    return fit_features(make_source(spark, days), scaled_pipeline(), root, [0, 1])


def test_counts_hold_every_value_of_every_fitted_day(spark, fitted, root, days):
    rows = Lake(root).read(spark, "counts", {0: 1, 1: 1}).collect()
    for day in (0, 1):
        for place, name in ((3, "C1"), (4, "C2"), (5, "C3")):
            mine = [r for r in rows if r["day"] == day and r["column"] == name]
            raw = [row[place] for row in days[day]]
            assert sum(r["count"] for r in mine) == len(raw)
            assert sum(r["count"] for r in mine if r["key"] is None and r["value"] is None) == raw.count(None)
            assert len(mine) == len(set(raw))


def test_scales_are_those_of_the_fitted_days(fitted, days):
    numbers = np.array([row[2] for day in (0, 1) for row in days[day]], float)
    mean, deviation = fitted.states[0][1].scales["I2"]
    assert mean == pytest.approx(numbers.mean(), rel=1e-12)
    assert deviation == pytest.approx(numbers.std(), rel=1e-12)


def test_moments_and_buckets_of_a_day_come_with_one_commit(spark, fitted, tmp_path, days):
    first, second = SCHEMA.dense[:1], SCHEMA.dense[1:]
    both = Pipeline(first >> FillMedian(), second >> FillMissing(0) >> Normalize(), SCHEMA.sparse >> Categorify())
    found = fit_features(make_source(spark, days), both, tmp_path, [0, 1])
    assert table_version(f"{tmp_path}/statistics") == 1
    present = sorted(row[1] for day in (0, 1) for row in days[day] if row[1] is not None)
    assert found.states[0][0].medians["I1"] == present[(len(present) - 1) // 2]
    assert found.states[1][1].scales["I2"] == fitted.states[0][1].scales["I2"]


def test_other_days_leave_no_trace_in_the_states(spark, tmp_path, fitted, days):
    changed = {**days, 2: make_rows(2, 300, salt="other")}
    again = fit_features(make_source(spark, changed), scaled_pipeline(), tmp_path / "a", [0, 1])
    assert again.state_id == fitted.state_id
    assert states_of(again) == states_of(fitted)
    # The control: the same replacement in a train day must show.
    control = {**days, 1: make_rows(1, 300, salt="other")}
    leaked = fit_features(make_source(spark, control), scaled_pipeline(), tmp_path / "b", [0, 1])
    assert states_of(leaked)[0] != states_of(fitted)[0]
    assert leaked.state_id != fitted.state_id


@pytest.mark.parametrize("num_partitions", [1, 32])
def test_the_state_does_not_depend_on_the_partitioning(spark, tmp_path, fitted, days, num_partitions):
    source = make_source(spark, days, num_partitions=num_partitions)
    assert fit_features(source, scaled_pipeline(), tmp_path / "lake", [0, 1]).state_id == fitted.state_id


def test_a_stored_fit_is_found_by_its_state_id(fitted, root):
    loaded = FittedPipeline.load(root / "states" / fitted.state_id)
    assert loaded.counted == fitted.counted
    assert loaded.encoded_schema == fitted.encoded_schema
    raw = {c.name: Values(np.array([5]), np.array([False])) for c in SCHEMA.dense}
    raw |= {c.name: Values(np.array([b"00000003"], object), np.array([False])) for c in SCHEMA.sparse}
    for name, values in fitted.replay(raw).items():
        assert loaded.replay(raw)[name].data_B == values.data_B


def test_a_day_without_rows_is_named(spark, days, tmp_path):
    with pytest.raises(DayError, match="day 9 holds no row"):
        fit_features(make_source(spark, days), make_pipeline(), tmp_path, [0, 9])
    assert not (tmp_path / "counts").exists()


def test_the_vocabulary_table_holds_what_the_state_holds(spark, fitted, root):
    rows = spark.read.format("delta").load(f"{root}/vocabulary").collect()
    for name, column in fitted.states[1][0].columns.items():
        mine = sorted((r for r in rows if r["column"] == name), key=lambda r: r["id"])
        assert [r["id"] for r in mine] == list(range(3, 3 + column.num_values))
        assert [(-r["count"], r["value"].encode()) for r in mine] == sorted(
            (-r["count"], r["value"].encode()) for r in mine
        )
        assert {r["admitted_state"] for r in mine} == {fitted.state_id}
        assert min(r["count"] for r in mine) >= 2
        assert {r["first_day"] for r in mine} <= {0, 1}


def test_large_vocabularies_stay_in_their_table(spark, tmp_path, days):
    source = make_source(spark, days)
    small = fit_features(source, make_pipeline(), tmp_path / "a", [0, 1])
    large = fit_features(source, make_pipeline(broadcast_max_values=6), tmp_path / "b", [0, 1])
    assert large.state_id == small.state_id
    columns = large.states[1][0].columns
    assert {name for name, c in columns.items() if c.keys is None} == {"C1"} | {
        name for name, c in columns.items() if c.num_values > 6
    }
    one, other = (sorted(tuple(r) for r in f.transform(source.frame).collect()) for f in (small, large))
    assert one == other


def test_large_vocabularies_are_completed_for_replay(spark, tmp_path, days):
    source = make_source(spark, days)
    fitted = fit_features(source, make_pipeline(broadcast_max_values=1), tmp_path, [0, 1])
    assert all(column.keys is None for column in fitted.states[1][0].columns.values())
    whole = with_all_arrays(FittedPipeline.load(tmp_path / "states" / fitted.state_id))
    small = fit_features(source, make_pipeline(), tmp_path, [0, 1])
    for name, column in small.states[1][0].columns.items():
        for part, array in whole.states[1][0].columns[name].keys.arrays().items():
            np.testing.assert_array_equal(array, column.keys.arrays()[part])


@pytest.mark.parametrize("moment", ["before", "within"])
def test_counts_that_another_run_removes_are_counted_again(spark, tmp_path, days, fitted, monkeypatch, moment):
    """A rival writes day 1 anew, and removes its old attempt, before this fit reads its counts or as it does."""
    root = tmp_path / "lake"
    source, rival = make_source(spark, days), make_source(spark, {1: make_rows(1, 33, salt="rival")})
    write_features(source, fit_features(source, scaled_pipeline(), root, [0, 1]))
    place, name = {"before": (fit, "_admit"), "within": (lake.Lake, "read")}[moment]
    real, rivals = getattr(place, name), [lambda: write_features(rival, FittedPipeline.load(states))]
    [states] = (root / "states").iterdir()

    def after_a_rival(*arguments):
        if rivals:
            rivals.pop()()
        return real(*arguments)

    monkeypatch.setattr(place, name, after_a_rival)
    again = fit_features(source, scaled_pipeline(), root, [0, 1])
    assert not rivals
    assert states_of(again)[0] == states_of(fitted)[0]
    assert again.counted[1].attempt > Lake(root).visible()[1].attempt


def test_a_second_fit_of_the_same_days_changes_nothing(spark, fitted, root, days):
    version = table_version(f"{root}/vocabulary")
    again = fit_features(make_source(spark, days, num_partitions=5), scaled_pipeline(), root, [0, 1])
    assert again.state_id == fitted.state_id
    assert table_version(f"{root}/vocabulary") == version


def test_hex_and_text_of_one_value_count_alike(spark, tmp_path):
    """The same values declared hex32 and string get the same ids: counted packed and by (column, value)."""
    values = [hashlib.sha256(str(k % 17).encode()).hexdigest()[:8] for k in range(200)]
    schema = FeatureSchema(
        columns=(
            Column(name="label", role="label", dtype="int32"),
            Column(name="A", role="sparse", dtype="string", key="hex32"),
            Column(name="B", role="sparse", dtype="string", key="string"),
        )
    )
    source = make_source(spark, {0: [(0, v, v) for v in values]}, schema=schema)
    fitted = fit_features(source, Pipeline(schema.sparse >> Categorify()), tmp_path, [0])
    rows = fitted.transform(source.frame).collect()
    assert len({r["A"] for r in rows}) == 17
    assert all(r["A"] == r["B"] for r in rows)


def test_the_stored_json_has_no_code(fitted, root):
    content = json.loads((root / "states" / fitted.state_id / "pipeline.json").read_text())
    assert [op for chain in content["chains"] for op in chain["ops"]][1] == ["normalize", {}]
