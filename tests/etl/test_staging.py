"""What runs leave behind on their way is removed, but for what another run may be using."""

import os
import time
from pathlib import Path

from rec.etl.staging import STALE_SECONDS, remove_stale


def test_what_no_run_used_for_a_week_is_removed_and_nothing_else(tmp_path):
    for name, age in (("old", STALE_SECONDS + 60), ("young", STALE_SECONDS - 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.parquet").write_bytes(b"1")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_stale(tmp_path)
    assert os.listdir(tmp_path) == ["young"]
    remove_stale(tmp_path / "no such folder")


def test_what_another_run_removes_meanwhile_is_no_fault(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    os.utime(tmp_path / "here", (0, 0))
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "gone", folder / "here"]))
    remove_stale(tmp_path)
    assert os.listdir(tmp_path) == []
