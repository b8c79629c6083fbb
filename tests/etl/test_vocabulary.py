"""The vocabulary table over several fits: ids only grow, and of two fits at once one starts again."""

import pytest
from make_source import make_pipeline, make_rows, make_source

from rec.core.errors import ConcurrentWriteError
from rec.core.schema import Column, FeatureSchema
from rec.etl import fit as fit_module
from rec.etl.delta import commits, table_version
from rec.etl.fit import fit_features
from rec.etl.lake import Lake
from rec.etl.vocabulary import commit_entries, entries_at, known_entries
from rec.ops.categorify import Categorify
from rec.ops.pipeline import Pipeline

SCHEMA = FeatureSchema(
    columns=(
        Column(name="label", role="label", dtype="int32"),
        Column(name="C", role="sparse", dtype="string", key="string"),
    )
)


def letters(text):
    return [(0, letter) for letter in text]


def pipeline(**arguments):
    return Pipeline(SCHEMA.sparse >> Categorify(**arguments))


def entries(spark, root):
    rows = spark.read.format("delta").load(f"{root}/vocabulary").collect()
    return {r["value"]: r for r in rows}


def test_a_refit_appends_ids_and_updates_counts(spark, tmp_path):
    days = {0: letters("aabbbc"), 1: letters("cccdda"), 2: letters("e")}
    source = make_source(spark, days, schema=SCHEMA)
    first = fit_features(source, pipeline(freq_threshold=2), tmp_path, [0])
    second = fit_features(source, pipeline(freq_threshold=2), tmp_path, [0, 1])
    found = entries(spark, tmp_path)
    assert {value: r["id"] for value, r in found.items()} == {"b": 3, "a": 4, "c": 5, "d": 6}
    assert {value: r["count"] for value, r in found.items()} == {"b": 3, "a": 3, "c": 4, "d": 2}
    assert {value: (r["first_day"], r["last_day"]) for value, r in found.items()} == {
        "b": (0, 0),
        "a": (0, 1),
        "c": (0, 1),
        "d": (1, 1),
    }
    assert {r["admitted_state"] for r in found.values()} == {first.state_id, second.state_id}
    assert found["a"]["admitted_state"] == first.state_id


def test_a_value_stays_when_its_total_falls(spark, tmp_path):
    source = make_source(spark, {0: letters("aab"), 1: letters("bbc")}, schema=SCHEMA)
    fit_features(source, pipeline(freq_threshold=2), tmp_path, [0])
    fitted = fit_features(source, pipeline(freq_threshold=2), tmp_path, [1])
    assert {value: (r["id"], r["count"]) for value, r in entries(spark, tmp_path).items()} == {"a": (3, 0), "b": (4, 2)}
    ids = {r["C"] for r in fitted.transform(source.frame).collect()}
    assert ids == {2, 3, 4}


def test_max_size_stops_admission_and_evicts_nothing(spark, tmp_path):
    source = make_source(spark, {0: letters("aabbc"), 1: letters("zzzzzz")}, schema=SCHEMA)
    fit_features(source, pipeline(max_size=3), tmp_path, [0])
    fit_features(source, pipeline(max_size=3), tmp_path, [0, 1])
    assert {value: r["id"] for value, r in entries(spark, tmp_path).items()} == {"a": 3, "b": 4, "c": 5}


def test_two_roots_fitted_alike_have_one_state_whatever_the_path_of_versions(spark, tmp_path):
    source = make_source(spark, {0: letters("aabbbc")}, schema=SCHEMA)
    one = fit_features(source, pipeline(), tmp_path / "a", [0])
    fit_features(source, pipeline(freq_threshold=3), tmp_path / "b", [0])
    other = fit_features(source, pipeline(), tmp_path / "b", [0])
    assert one.state_id == other.state_id


def test_a_fit_that_lost_starts_again_from_what_the_other_left(spark, tmp_path, monkeypatch):
    mine = make_source(spark, {0: letters("aab")}, schema=SCHEMA)
    others = make_source(spark, {1: letters("xxx")}, schema=SCHEMA)
    real = fit_module.commit_entries
    rivals = [lambda: fit_features(others, pipeline(), tmp_path, [1])]

    def commit_after_a_rival(*arguments):
        if rivals:
            rivals.pop()()
        return real(*arguments)

    monkeypatch.setattr(fit_module, "commit_entries", commit_after_a_rival)
    fit_features(mine, pipeline(), tmp_path, [0])
    assert {value: r["id"] for value, r in entries(spark, tmp_path).items()} == {"x": 3, "a": 4, "b": 5}


def test_a_dropped_commit_is_noticed(spark, tmp_path):
    """Delta drops a repeated txnVersion without an error: reading back is what tells."""
    source = make_source(spark, {0: letters("aab")}, schema=SCHEMA)
    fit_features(source, pipeline(), tmp_path, [0])
    lake = Lake(tmp_path)
    known = known_entries(lake, spark, 0, ["C"])
    fresh = entries_at(lake, spark, 1, ["C"])
    version = table_version(lake.uri("vocabulary"))
    with pytest.raises(ConcurrentWriteError, match="another fit"):
        commit_entries(lake, fresh, known, 0, {"run_id": "r", "state_id": "s"})
    assert table_version(lake.uri("vocabulary")) == version


def test_every_commit_names_its_run_and_state(spark, tmp_path):
    source = make_source(spark, {0: make_rows(0, 50)})
    fitted = fit_features(source, make_pipeline(), tmp_path, [0], run_id="nightly")
    newest = next(commits(f"{tmp_path}/vocabulary"))
    assert (newest.metadata["run_id"], newest.metadata["state_id"]) == ("nightly", fitted.state_id)
