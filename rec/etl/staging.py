"""Parsed lines laid down once as Parquet: ledger, counts and features read these instead of the text."""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rec.core.errors import InputError
from rec.core.manifest import aside, sha256_json
from rec.etl.intake import SourceFile

STALE_SECONDS = 7 * 24 * 3600
# One writer a day and no sort by day before it; beyond as many days in one task Spark sorts.
PARTITIONED_WRITE = {
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
}
# Measured: parsed lines take less than this share of the text.
_SHARE_OF_TEXT = 0.8


def staged(files: Sequence[SourceFile], made_by: Any, work_dir: str, write: Callable[[Path], None]) -> Path:
    """Return the folder below ``work_dir`` that ``write`` fills from the files, filled by now or by an earlier run.

    ``made_by`` is the JSON value that, with the files' bytes, decides what is in it. Raises InputError where free space
    would not do, or where a file changed while it was read.
    """
    digest = sha256_json({"files": [[f.sha256, f.num_lines] for f in files], "made_by": made_by})
    folder = Path(work_dir, "rows", digest).absolute()
    remove_stale(folder.parent)
    if not folder.exists():
        _check_free_space(files, folder.parent)
        _fill(files, folder, write)
    os.utime(folder)
    return folder


def _check_free_space(files: Sequence[SourceFile], parent: Path) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    wanted = int(sum(file.num_bytes for file in files) * _SHARE_OF_TEXT)
    free = shutil.disk_usage(parent).free
    if free < wanted:
        raise InputError(
            f"{files[0].path} and {len(files) - 1} more: parsed they take up to {wanted:,} bytes, {parent} has "
            f"{free:,} free; free space there or set source.work_dir to another disk"
        )


def _fill(files: Sequence[SourceFile], folder: Path, write: Callable[[Path], None]) -> None:
    """Write aside, then rename into place: no reader sees half of it, or lines of another file than was measured."""
    partial = aside(folder)
    try:
        write(partial)
        for file in files:
            file.check_unchanged()
        try:
            partial.rename(folder)
        except OSError:
            # Another run was faster, and may be reading its own.
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove what killed or finished runs left: nothing here is read a week later."""
    for path in folder.iterdir() if folder.is_dir() else ():
        # Another run may remove the same, or its own, at the same time.
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
