"""Figures of the features stage: of the run's own versions, and of the runs that wrote what was there already."""

import pytest
from make_source import SCHEMA, make_pipeline, make_rows, make_source

from rec.core.records import Run, StageRecord
from rec.etl.build import build_features
from rec.ops.pipeline import Pipeline

DAYS = {day: make_rows(day, 60) for day in (0, 1)}


@pytest.fixture
def build(spark, tmp_path):
    """Build the features of some days' rows as one run, fitted on day 0."""

    def built(days, run_id, pipeline=None):
        return build_features(make_source(spark, days), pipeline or make_pipeline(), tmp_path, (0,), run_id)

    return built


def test_columns_are_of_the_runs_own_table_and_vocabulary(build):
    first = build(DAYS, "first")
    columns = first.figures()["columns"]
    later = build({0: make_rows(0, 90, salt="repaired"), 1: DAYS[1]}, "later")
    assert later.table.version > first.table.version
    assert {card["rows"] for card in columns} == {120}
    assert {card["rows"] for card in later.figures()["columns"]} == {150}
    assert first.figures()["columns"] == columns


def test_columns_are_of_the_runs_own_days(build):
    build(DAYS, "first")
    one = build({0: DAYS[0]}, "second")
    assert {card["rows"] for card in one.figures()["columns"]} == {60}


def test_a_pipeline_without_vocabulary_has_figures(build):
    dense = make_pipeline().chains[0]
    cards = build(DAYS, "first", Pipeline(dense)).figures()["columns"]
    assert [card["name"] for card in cards] == [c.name for c in SCHEMA.dense]


def test_what_was_there_already_is_the_work_of_the_runs_that_wrote_it(build, tmp_path):
    first = build(DAYS, "first").figures()
    assert (first["no_op"], first["written_by"]) == (False, [])
    Run(tmp_path, "first").write(
        StageRecord(run_id="first", stage="etl", config={}, started_utc="2026-03-01T02:15:00+00:00", seconds=96.2)
    )
    repaired = {0: DAYS[0], 1: make_rows(1, 60, salt="repaired")}
    assert build(repaired, "second").written == (1,)
    figures = build(repaired, "third").figures()
    assert figures["no_op"]
    assert figures["written_by"] == [{"run_id": "first", "seconds": 96.2}, {"run_id": "second", "seconds": None}]
