"""Bad input to the features stage: one clear line, exit code 2, nothing half written."""

import copy
import gzip
import shutil
import subprocess
from pathlib import Path

import pytest


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8-sig").splitlines()


def copy_raw(road, change) -> None:
    """Point the recipe to a copy of its rows in which ``change(path)`` changed the first file."""
    raw = road.folder / "raw"
    shutil.copytree(Path(road.content["source"]["path"]).parent, raw)
    change(raw / "day_0.tsv")
    road.content["source"]["path"] = str(raw / "day_*")


def set_path(road, value):
    road.content["source"]["path"] = str(value)


def empty_folder(road):
    (road.folder / "empty").mkdir()
    set_path(road, road.folder / "empty")


def truncated_gzip(road):
    def change(path):
        packed = gzip.compress(path.read_bytes())
        path.with_name("day_0.gz").write_bytes(packed[: len(packed) // 2])
        path.unlink()

    copy_raw(road, change)


def trailing_bytes(road):
    def change(path):
        path.with_name("day_0.gz").write_bytes(gzip.compress(path.read_bytes()) + b"\x00garbage")
        path.unlink()

    copy_raw(road, change)


def all_quarantined(road):
    copy_raw(road, lambda path: [p.write_text("not\ta\trow\n" * 50) for p in path.parent.glob("*.tsv")])


def some_quarantined(road):
    copy_raw(road, lambda path: path.write_text(path.read_text() + "short\n" * 20))


def link_to_nothing(road):
    copy_raw(road, lambda path: path.with_name("day_3.tsv").symlink_to("day_3.gone"))


def set_ops(chain, *ops):
    return lambda road: road.content["features"][chain].update(ops=list(ops))


def set_root(name):
    def plant(road):
        road.root = road.folder / name
        road.content["root"] = str(road.root)

    return plant


# What shows without a row, and once showed when rows were counted: on a root with days, all of it is left as it was.
WITHOUT_ROWS = {
    "dense operator on a sparse column": (
        set_ops("sparse", "fill_missing", {"categorify": {"freq_threshold": 2}}),
        "columns C1, C2, C3 and 23 more: sparse, but fill_missing takes dense ones",
    ),
    "dense operator on ids": (set_ops("sparse", "categorify", "log"), "sparse, but log takes dense ones"),
    "sparse operator on a dense column": (set_ops("dense", "categorify"), "dense, but categorify takes sparse ones"),
    "bound that the column's type cannot hold": (
        set_ops("dense", "fill_missing", {"clip": {"min": 0.5}}),
        "column 'I1' is int64 and clip.min = 0.5",
    ),
    "argument of another type": (
        set_ops("dense", {"fill_missing": {"value": "0"}}),
        "fill_missing: value = '0'; give a finite number",
    ),
}
FAULTS = {
    **WITHOUT_ROWS,
    "root that readers of Delta take for another": (set_root("la%20ke"), "'%20' in its path means something else"),
    "root with a backslash": (set_root("la\\ke"), "'\\\\' in its path means something else"),
    "root with a tab": (set_root("la\tke"), "'\\t' in its path means something else"),
    "link to nothing": (link_to_nothing, "day_3.tsv: a link to day_3.gone, which is not there"),
    "missing file": (lambda road: set_path(road, road.folder / "nowhere.tsv"), "nowhere.tsv"),
    "empty folder": (empty_folder, "empty"),
    "truncated gzip": (truncated_gzip, "day_0.gz"),
    "bytes after the last gzip member": (trailing_bytes, "day_0.gz"),
    "unknown key": (lambda road: road.content.update(trian={}), "unknown key 'trian'; did you mean 'train'?"),
    "unknown key below": (
        lambda road: road.content["train"].update(global_batchsize=1),
        "unknown key 'train.global_batchsize'; did you mean 'global_batch_size'?",
    ),
    "wrong type": (lambda road: road.content["train"].update(max_epochs="many"), "train.max_epochs = 'many'"),
    "unknown operator": (
        lambda road: road.content["features"]["dense"].update(ops=["fill_mising"]),
        "fill_missing",
    ),
    "unknown argument": (
        lambda road: road.content["features"]["sparse"].update(ops=[{"categorify": {"freq_treshold": 2}}]),
        "freq_threshold",
    ),
    "pattern that fits no column": (lambda road: road.content["features"]["dense"].update(columns="X*"), "'X*'"),
    "day not in data": (lambda road: road.content["days"].update(test=[7]), "days.test: day 7"),
    "no rule for the day": (lambda road: road.content["source"].update(day={}), "exactly one of"),
    "two rules for the day": (
        lambda road: road.content["source"].update(day={"path": r"(\d+)", "lines": [0.5]}),
        "exactly one of",
    ),
    "path without a day": (lambda road: road.content["source"].update(day={"path": r"hour_(\d+)"}), "hour_"),
    "all rows quarantined": (all_quarantined, "no row is left"),
    "more than the limit quarantined": (some_quarantined, "the limit is 0.100%"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_one_line_exit_2_and_nothing_written(road, capsys, fault):
    plant, expected = FAULTS[fault]
    plant(road)
    assert road.command("etl") == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert expected in errors[0]
    assert not [name for name in road.written() if not name.startswith(("runs/", "staging/", "work/"))]


def test_a_refused_run_leaves_a_finished_root_as_it_was(road, capsys, spark):
    def tables():
        return [name for name in road.written() if not name.startswith(("runs/", "staging/", "work/"))]

    assert road.command("etl") == 0
    before, recipe = tables(), copy.deepcopy(road.content)
    narrow = (lambda road: road.content["features"]["dense"].update(columns=["I1", "I2"]), "features no longer name it")
    for plant, expected in [*WITHOUT_ROWS.values(), narrow]:
        road.content = copy.deepcopy(recipe)
        plant(road)
        capsys.readouterr()
        assert road.command("etl") == 2
        assert expected in capsys.readouterr().err
        assert tables() == before
    road.content = recipe
    set_ops("sparse", {"categorify": {"freq_threshold": 3}})(road)
    spark.sql(f"ALTER TABLE delta.`{road.root}/goldens` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    before = tables()
    assert road.command("etl") == 2
    assert "goldens: feature 'deletionVectors' is on" in capsys.readouterr().err
    assert tables() == before


@pytest.mark.parametrize("verb", ["train", "evaluate", "push"])
def test_a_stage_without_the_one_before_names_the_command(road, capsys, verb):
    assert road.command(verb) == 2
    assert "rec " in capsys.readouterr().err


@pytest.fixture
def small_disk():
    """Mount a disk of some size on a folder, until the test's end."""
    mounted = []

    def mount(folder, size):
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_leaves_no_day_visible(road, capsys, small_disk):
    small_disk(road.root, "1m")
    road.content["source"]["work_dir"] = str(road.folder / "work")
    assert road.command("etl") == 2
    assert "error: No space left on device" in capsys.readouterr().err
    assert not list(road.root.glob("features/day=*/*.parquet"))


def test_a_work_folder_without_room_is_named_before_anything_is_written(road, capsys, small_disk):
    small_disk(road.folder / "work", "100k")
    road.content["source"]["work_dir"] = str(road.folder / "work")
    assert road.command("etl") == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert f"{road.folder}/work" in line
    assert "source.work_dir" in line
    assert not [name for name in road.written() if not name.startswith("runs/")]


def test_debug_shows_the_traceback(road):
    road.content["days"]["test"] = [7]
    with pytest.raises(ValueError, match="day 7"):
        road.command("etl", "--debug")


def test_a_recipe_that_is_not_there(capsys):
    from rec.cli import main

    assert main(["etl", "nowhere.yaml"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err


def test_an_unknown_verb_and_option(capsys):
    from rec.cli import main

    assert main(["elt"]) == 2
    assert main(["etl", "--nope"]) == 2
    assert "nope" in capsys.readouterr().err


def test_a_settings_override_is_checked(road, capsys):
    assert road.command("etl", "--set", "source.pad_rihgt=true") == 2
    assert "pad_right" in capsys.readouterr().err
