"""kill -9 around a commit: what was there stays readable, and the next run leaves no trace of the dead one."""

import shutil
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
TABLES = ("features", "vocabulary", "counts", "ledger", "quarantine", "files", "goldens")


def run_killed(root, table, when, number=1, salt=""):
    command = [sys.executable, FOLDER / "killed_run.py", root, table, when, str(number), salt]
    # A group of its own: the JVM of the run dies with it, as it would with its machine.
    run = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=300)
    assert run.returncode == -signal.SIGKILL, run.stderr[-2000:]


def run_whole(spark, root, salt=""):
    days = {0: make_rows(0, 60), 1: make_rows(1, 70, salt=salt)}
    source = make_source(spark, days, quarantined=[(0, "blank"), (1, "blank")])
    return write_features(source, fit_features(source, make_pipeline(), root, [0, 1]))


def content(spark, root):
    """Return every table's rows, without the numbers of attempts."""
    found = {}
    for name in TABLES:
        frame = spark.read.format("delta").load(f"{root}/{name}").drop("attempt")
        found[name] = sorted(map(repr, frame.collect()))
    return found


def check_clean(spark, root, expected):
    assert content(spark, root) == expected
    visible = {(day, shown.attempt) for day, shown in Lake(root).visible().items()}
    for name in ("ledger", "counts", "quarantine"):
        assert Lake(root).attempts(name) == visible, name


@pytest.fixture(scope="module")
def finished(spark, tmp_path_factory):
    """A root with two days, and what its tables hold."""
    root = tmp_path_factory.mktemp("finished") / "lake"
    run_whole(spark, root)
    return root, content(spark, root)


@pytest.fixture(scope="module")
def repaired(spark, finished, tmp_path_factory):
    """What the tables hold after an undisturbed run over the repaired day 1."""
    root = tmp_path_factory.mktemp("repaired") / "lake"
    shutil.copytree(finished[0], root)
    run_whole(spark, root, salt="repaired")
    return content(spark, root)


def check_repair(spark, root, finished, repaired, table, when):
    """Killed while a repaired day is written: the old rows stay, and the next run puts the repaired ones there."""
    shutil.copytree(finished[0], root)
    before = open_features(root)
    run_killed(root, table, when, salt="repaired")
    assert open_features(root, version=before.version) == before
    old = spark.read.format("delta").option("versionAsOf", before.version).load(before.uri)
    assert sorted(map(repr, old.collect())) == finished[1]["features"]
    if (table, when) != ("features", "after"):
        assert open_features(root) == before
    run_whole(spark, root, salt="repaired")
    check_clean(spark, root, repaired)
    assert repaired["features"] != finished[1]["features"]


def check_first_run(spark, root, finished, table, when, number=1):
    run_killed(root, table, when, number)
    reached = Lake(root).visible()
    if reached:
        assert open_features(root).num_rows == sum(day.num_rows for day in reached.values())
    run_whole(spark, root)
    check_clean(spark, root, finished[1])


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_the_features_commit(spark, tmp_path, finished, repaired, when):
    check_repair(spark, tmp_path / "lake", finished, repaired, "features", when)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("table", ["files", "ledger", "quarantine", "counts", "vocabulary"])
def test_killed_at_another_tables_commit(spark, tmp_path, finished, repaired, table, when):
    check_repair(spark, tmp_path / "lake", finished, repaired, table, when)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("table", "number"), [*[(name, 1) for name in TABLES], ("features", 2)])
def test_killed_in_a_first_run(spark, tmp_path, finished, table, number, when):
    check_first_run(spark, tmp_path / "lake", finished, table, when, number)
