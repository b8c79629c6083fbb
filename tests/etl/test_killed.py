"""kill -9 around a commit: what was there stays readable, and the next run leaves no trace of the dead one."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from make_source import make_pipeline, make_rows, make_source

from rec.etl.features import open_features
from rec.etl.fit import fit_features
from rec.etl.lake import Lake
from rec.etl.sink import write_features

FOLDER = Path(__file__).parent
QUARANTINED = [(0, "blank"), (1, "blank")]


def run_killed(root, table, when, number=1, salt=""):
    command = [sys.executable, FOLDER / "killed_run.py", root, table, when, str(number), salt]
    # A group of its own: the JVM of the run dies with it, as it would with its machine.
    run = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=300)
    assert run.returncode == -signal.SIGKILL, run.stderr[-2000:]


def run_whole(spark, root, salt=""):
    days = {0: make_rows(0, 60), 1: make_rows(1, 70, salt=salt)}
    source = make_source(spark, days, quarantined=QUARANTINED)
    return write_features(source, fit_features(source, make_pipeline(), root, [0, 1]))


def content(spark, root):
    """Return every table's rows, without what numbers attempts and runs."""
    found = {}
    for name in ("features", "vocabulary", "counts", "ledger", "quarantine", "files", "goldens"):
        frame = spark.read.format("delta").load(f"{root}/{name}").drop("attempt", "admitted_state")
        found[name] = sorted(map(repr, frame.collect()))
    return found


def check_attempts(root):
    visible = {(day, shown.attempt) for day, shown in Lake(root).visible().items()}
    assert {day for day, _ in visible} == {0, 1}
    for name in ("ledger", "counts", "quarantine"):
        assert Lake(root).attempts(name) == visible, name


def check_first_run(spark, tmp_path, table, when, number=1):
    root, clean = tmp_path / "lake", tmp_path / "clean"
    run_killed(root, table, when, number)
    reached = Lake(root).visible()
    if reached:
        assert open_features(root).num_rows == sum(day.num_rows for day in reached.values())
    assert run_whole(spark, root).num_rows == 130
    run_whole(spark, clean)
    assert content(spark, root) == content(spark, clean)
    check_attempts(root)


def check_repaired_run(spark, root, table, when, number=1):
    """Killed over a finished table while a repaired day is written: the old version stays, the next run replaces."""
    before = open_features(root)
    rows = sorted(map(repr, spark.read.format("delta").load(before.uri).collect()))
    run_killed(root, table, when, number, salt="repaired")
    assert open_features(root, version=before.version) == before
    old = spark.read.format("delta").option("versionAsOf", before.version).load(before.uri)
    assert sorted(map(repr, old.collect())) == rows
    run_whole(spark, root, salt="repaired")
    check_attempts(root)
    assert open_features(root).num_rows == 130
    assert sorted(map(repr, spark.read.format("delta").load(before.uri).collect())) != rows


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_the_features_commit(spark, tmp_path, when):
    check_first_run(spark, tmp_path, "features", when)
    check_repaired_run(spark, tmp_path / "lake", "features", when)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("table", ["files", "ledger", "quarantine", "counts", "vocabulary"])
def test_killed_at_another_tables_commit(spark, tmp_path, table, when):
    check_first_run(spark, tmp_path, table, when)
    check_repaired_run(spark, tmp_path / "lake", table, when)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("table", "number"), [("goldens", 1), ("features", 2)])
def test_killed_late_in_a_first_run(spark, tmp_path, table, number, when):
    check_first_run(spark, tmp_path, table, when, number)
