"""Generated rows take no file's place but that of generated rows."""

import os
from pathlib import Path

import pytest

from rec.core.errors import ConfigError
from rec.datasets.criteo_like import (
    CriteoLikeConfig,
    CriteoLikeDataset,
    prepare_rows,
    write_criteo_like,
    written_config,
)
from rec.datasets.folder import STAGING, folder_of_source

FIRST = CriteoLikeConfig(num_days=2, rows_per_day=30, malformed_per_day=0, crlf_per_day=0)
SECOND = FIRST.model_copy(update={"num_days": 1, "seed": 2})


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def kill_at(monkeypatch, name: str, call: int) -> None:
    """Raise KeyboardInterrupt in place of the n-th call of os.replace or Path.unlink."""
    owner, calls = (os, []) if name == "replace" else (Path, [])
    real = getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize(
    "files",
    [
        {"day_0.tsv": b"1\treal"},
        {"day_7.tsv": b"1\treal"},
        {"notes/readme.txt": b"ours"},
        {"ledger.json": b"{}"},
        {"ledger.json": b"\xff\xfe"},
        {"planted/day_0.npy": b""},
    ],
)
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    with pytest.raises(ConfigError) as fault:
        write_criteo_like(tmp_path, FIRST)
    assert str(fault.value).startswith(str(tmp_path / next(iter(files))))
    assert "remove `dataset:` from the recipe (--set dataset=null), or name another source.path" in str(fault.value)
    assert content(tmp_path) == files
    assert not (tmp_path / STAGING).exists()


@pytest.mark.parametrize("change", ["changed", "replaced by a link", "joined by another"])
def test_a_written_folder_that_was_changed_is_refused(tmp_path, change):
    folder = tmp_path / "raw"
    write_criteo_like(folder, FIRST)
    real = tmp_path / "real.tsv"
    real.write_bytes(b"1\treal")
    day = folder / ("day_2.tsv" if change == "joined by another" else "day_1.tsv")
    day.unlink(missing_ok=True)
    day.symlink_to(real) if change == "replaced by a link" else day.write_bytes(real.read_bytes())
    before = content(folder)
    with pytest.raises(ConfigError, match=day.name):
        write_criteo_like(folder, SECOND)
    assert content(folder) == before


def test_generated_rows_take_the_place_of_generated_rows(tmp_path):
    write_criteo_like(tmp_path / "one", FIRST)
    dataset = write_criteo_like(tmp_path / "one", SECOND)
    assert dataset == CriteoLikeDataset.open(tmp_path / "one")
    write_criteo_like(tmp_path / "two", SECOND)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_a_stopped_run_leaves_the_rows_before_it(tmp_path):
    write_criteo_like(tmp_path, FIRST)
    before = content(tmp_path)

    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_criteo_like(tmp_path, SECOND, stop)
    assert {k: v for k, v in content(tmp_path).items() if not k.startswith(STAGING)} == before
    write_criteo_like(tmp_path, FIRST)
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["replace", "unlink"])
@pytest.mark.parametrize("call", range(1, 7))
def test_a_run_stopped_at_any_move_is_taken_up(tmp_path, name, call):
    folder = tmp_path / "raw"
    write_criteo_like(folder, FIRST)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, name, call)
        try:
            write_criteo_like(folder, SECOND)
        except KeyboardInterrupt:
            assert written_config(folder) in (None, FIRST)
    write_criteo_like(folder, SECOND)
    write_criteo_like(tmp_path / "alone", SECOND)
    assert content(folder) == content(tmp_path / "alone")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/raw/*/day_*.tsv", "no one folder"),
        ("/raw/train.txt", "does not read generated rows"),
        ("/raw", "day_\\*.tsv"),
    ],
)
def test_a_source_that_would_not_read_the_rows(path, message):
    with pytest.raises(ConfigError, match=message):
        folder_of_source(path)


def test_a_source_of_real_rows_is_left_alone(tmp_path):
    (tmp_path / "day_0.tsv").write_bytes(b"1\treal")
    with pytest.raises(ConfigError, match=r"day_0\.tsv: not as the generator wrote it"):
        prepare_rows(f"{tmp_path}/day_*.tsv", FIRST)
    assert content(tmp_path) == {"day_0.tsv": b"1\treal"}


def test_rows_of_the_same_config_are_not_written_again(tmp_path):
    prepare_rows(f"{tmp_path}/day_*.tsv", FIRST)
    before = (tmp_path / "day_0.tsv").stat().st_mtime_ns
    prepare_rows(f"{tmp_path}/day_*.tsv", FIRST)
    assert (tmp_path / "day_0.tsv").stat().st_mtime_ns == before
    prepare_rows(f"{tmp_path}/day_*.tsv", SECOND)
    assert written_config(tmp_path) == SECOND
