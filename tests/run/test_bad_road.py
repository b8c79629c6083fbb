"""Stages whose input is gone or cannot be learned from: one line with place and remedy, nothing half written."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from refusal import refusal
from small_road import Road

from rec.etl.features import open_features

REPOSITORY = Path(__file__).resolve().parents[2]
LABELS = {1: "0", 2: "1"}
# The one day of both labels is evaluated.
BOTH = ("days.train=[1]", "days.test=[0]")


@pytest.fixture(scope="module")
def one_label_days(tmp_path_factory, raw_days) -> Path:
    """The generated rows, those of day 1 all negative and those of day 2 all positive."""
    folder = tmp_path_factory.mktemp("labels")
    for path in raw_days.glob("day_*.tsv"):
        label = LABELS.get(int(path.stem[-1]))
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        changed = [line if label is None else label + line[line.index("\t") :] for line in lines]
        (folder / path.name).write_text("\n".join(changed) + "\n")
    return folder


def small(folder: Path, raw: Path) -> Road:
    """A road of few columns; the valid days are left out, for theirs is a class of its own."""
    road = Road(folder, raw)
    road.content["features"]["sparse"]["columns"] = ["C1", "C2"]
    road.content["days"] = {"train": [0], "test": [2]}
    return road


@pytest.fixture(scope="module")
def trained(tmp_path_factory, one_label_days, spark) -> Road:
    road = small(tmp_path_factory.mktemp("trained"), one_label_days)
    assert road.command("etl") == 0
    assert road.command("train") == 0
    return road


@pytest.fixture
def refuse(trained, capsys):
    """Run a verb over the trained road that must be refused; check that it leaves no file, return its line."""

    def run(verb: str, *settings: str) -> str:
        before = trained.written()
        line = refusal(capsys, verb, trained.folder / "recipe.yaml", *[x for s in settings for x in ("--set", s)])
        assert trained.written() == before
        return line

    return run


@pytest.fixture
def without(tmp_path):
    """Move a file or folder away for the time of a test."""
    moved: list[tuple[Path, Path]] = []

    def move(path: Path) -> None:
        kept = tmp_path / path.name
        os.rename(path, kept)
        moved.append((kept, path))

    yield move
    for kept, path in moved:
        os.rename(kept, path)


def test_train_days_of_one_label(refuse):
    line = refuse("train", "days.train=[1]", "days.test=[]")
    assert "days.train [1]: all 300 labelled rows have label 0; both 0 and 1 are needed, name other days" in line


def test_valid_days_of_one_label(refuse):
    line = refuse("train", "days.valid=[1]")
    assert "days.valid [1]: all 300 labelled rows have label 0" in line


def test_test_days_of_one_label(refuse):
    line = refuse("evaluate")
    assert "days.test [2]: all 300 labelled rows have label 1; both 0 and 1 are needed, name other days" in line


def test_fewer_rows_than_a_global_batch(refuse):
    line = refuse("train", "train.global_batch_size=1024")
    assert "days [0] hold 600 labelled rows, fewer than global_batch_size = 1024; set it lower, or name more" in line


def test_a_day_that_the_table_does_not_hold(refuse):
    assert "day 7 is not in the table; it holds days [0, 1, 2]" in refuse("train", "days.train=[7]")


def test_no_job_starts_for_ranks_that_do_not_divide_the_streams(refuse, spark):
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    assert "world size 3 does not divide num_streams = 4" in refuse("train", "train.num_proc=3")
    assert scheduler.numTotalJobs() == before


def test_a_root_below_a_file(refuse, trained):
    root = trained.folder / "recipe.yaml/lake"
    line = refuse("etl", f"root={root}")
    assert f"{root}/" in line
    assert "Not a directory" in line


def test_a_feature_table_that_is_gone(trained, refuse, without):
    without(trained.root / "features")
    uri = str(trained.root / "features")
    assert f"table {uri}: no Delta table there; write it with rec etl first" in refuse("train")
    line = refuse("evaluate", *BOTH)
    assert f"{uri} version " in line
    assert "no Delta table is there" in line


@pytest.mark.parametrize("verb", ["etl", "train", "evaluate"])
def test_a_data_file_that_is_gone(trained, refuse, without, verb):
    file = next((trained.root / "features/day=0").glob("*.parquet"))
    without(file)
    line = refuse(verb, *(BOTH if verb == "evaluate" else ()))
    assert f"{trained.root}/features version " in line
    assert f"files of this version were removed, {file.name} is one; restore them from a copy" in line
    assert "remove the table's folder and run rec etl and rec train again" in line


@pytest.mark.parametrize("verb", ["evaluate", "push"])
def test_a_checkpoint_that_is_gone(trained, refuse, without, verb):
    without(trained.root / "checkpoints")
    assert str(trained.root / "checkpoints") in refuse(verb)


def test_a_push_before_any_evaluation(trained, refuse):
    """Comes before the tests that evaluate: what is served is compared with what an evaluation scored."""
    line = refuse("push")
    assert f"{trained.root}: no evaluate stage was run here on {trained.root}/checkpoints/" in line
    assert "run: rec evaluate RECIPE" in line
    assert not (trained.folder / "models").exists()


def test_a_port_in_use_leaves_no_version(trained, refuse):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert trained.command("evaluate", *[x for s in BOTH for x in ("--set", s)]) == 0
        # What the bundle holds is made before the push and is whole.
        assert trained.command("push", "--set", f"serve.http_port={port}") == 2
        line = refuse("push", f"serve.http_port={port}")
    assert f"serve.http_port {port}: in use by process {os.getpid()} " in line
    assert not list((trained.folder / "models").glob("*/*"))


@pytest.fixture
def restored(trained, tmp_path):
    """Put the feature table back as it was."""
    shutil.copytree(trained.root / "features", tmp_path / "features")
    yield
    shutil.rmtree(trained.root / "features")
    shutil.copytree(tmp_path / "features", trained.root / "features")


@pytest.mark.usefixtures("restored")
def test_a_version_whose_files_were_vacuumed(trained, refuse, tmp_path, one_label_days):
    """What a checkpoint was trained on is gone after a forced vacuum; the newest version still opens."""
    first = open_features(trained.root)
    raw = shutil.copytree(one_label_days, tmp_path / "raw")
    repaired = raw / "day_0.tsv"
    repaired.write_text("".join(repaired.read_text().splitlines(keepends=True)[:-1]))
    repair = ["--set", f"source.path={raw}/day_*.tsv"]
    assert trained.command("etl", *repair) == 0
    DeltaTable(first.uri).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    line = refuse("evaluate", *BOTH)
    assert f"{first.uri} version {first.version}: files of this version were removed" in line
    assert "go on with a later version" in line
    assert open_features(trained.root).num_rows == first.num_rows - 1
    # The remedy where no version is whole.
    shutil.rmtree(first.uri)
    assert trained.command("etl", *repair) == 0
    assert open_features(trained.root).num_rows == first.num_rows - 1


def start_killed(road: Road, verb: str, when) -> None:
    """Run a verb in a process group of its own, and kill all of it as soon as ``when()`` holds."""
    command = [sys.executable, "-m", "rec.cli", verb, road.folder / "recipe.yaml"]
    with open(road.folder / "killed.log", "wb") as log:
        run = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 200
    try:
        while not when():
            assert run.poll() is None, (road.folder / "killed.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()


@pytest.mark.slow
def test_after_a_killed_features_stage_later_ones_name_it_and_a_rerun_is_whole(
    tmp_path, one_label_days, spark, capsys, trained
):
    road = small(tmp_path, one_label_days)
    assert road.command("train") == 2
    start_killed(road, "etl", lambda: list(road.root.glob("counts/_delta_log/*1.json")))
    assert not list(road.root.glob("features/day=*/*.parquet"))
    recipe = tmp_path / "recipe.yaml"
    assert "rec etl" in refusal(capsys, "train", recipe)
    assert "no train stage was run here; run: rec train RECIPE" in refusal(capsys, "evaluate", recipe)
    assert "no train stage was run here; run: rec train RECIPE" in refusal(capsys, "push", recipe)
    assert road.command("etl") == 0
    assert open_features(road.root).state_id == open_features(trained.root).state_id


@pytest.mark.slow
def test_after_a_killed_training_evaluation_names_it_and_a_rerun_is_whole(tmp_path, one_label_days, spark, capsys):
    road = small(tmp_path, one_label_days)
    road.content["train"]["max_epochs"] = 200
    assert road.command("etl") == 0
    start_killed(road, "train", lambda: list(road.root.glob("checkpoints/*/*/manifest.json")))
    assert "no train stage was run here; run: rec train RECIPE" in refusal(capsys, "evaluate", tmp_path / "recipe.yaml")
    assert road.command("train", "--set", "train.max_epochs=1") == 0
    assert road.command("evaluate", *[x for s in BOTH for x in ("--set", s)]) == 0
