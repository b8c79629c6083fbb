"""Parsed lines laid down once as Parquet: ledger, counts and features read these instead of the text."""

import os
import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from rec.core.errors import InputError
from rec.core.manifest import sha256_json
from rec.etl.binned import BinnedLines
from rec.etl.delta import session_settings
from rec.etl.scan import escape

STALE_SECONDS = 7 * 24 * 3600
# One writer a day and no sort by day before it; beyond as many days in one task Spark sorts.
PARTITIONED_WRITE = {
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
}
# Measured: parsed lines take less than this share of the text.
_SHARE_OF_TEXT = 0.8
_DONE = "_SUCCESS"


def staged(lines: BinnedLines, made_by: Any, work_dir: str) -> BinnedLines:
    """Return the lines as read from Parquet below ``work_dir``, written there unless an earlier run did.

    ``made_by`` is the JSON value that, with the files, decides every value of the frame. Raises InputError where free
    space would not do.
    """
    digest = sha256_json({"files": [[f.sha256, f.num_lines] for f in lines.files], "made_by": made_by})
    folder = Path(work_dir, "rows", digest).absolute()
    remove_stale(folder.parent)
    if not (folder / _DONE).exists():
        _check_free_space(lines, folder.parent)
        _write(lines, folder)
    os.utime(folder)
    spark = lines.frame.sparkSession
    frame = spark.read.schema(lines.frame.schema).parquet(escape(str(folder)))
    return replace(lines, frame=frame.select(*lines.frame.columns))


def _check_free_space(lines: BinnedLines, parent: Path) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    wanted = int(sum(file.num_bytes for file in lines.files) * _SHARE_OF_TEXT)
    free = shutil.disk_usage(parent).free
    if free < wanted:
        raise InputError(
            f"{lines.files[0].path} and {len(lines.files) - 1} more: parsed they take up to {wanted:,} bytes, {parent} "
            f"has {free:,} free; free space there or set source.work_dir to another disk"
        )


def _write(lines: BinnedLines, folder: Path) -> None:
    """Write aside, then rename into place: no reader sees half of it, or lines of another file than was measured."""
    aside = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        with session_settings(lines.frame.sparkSession, PARTITIONED_WRITE):
            lines.frame.write.partitionBy("day").parquet(str(aside))
        for file in lines.files:
            file.check_unchanged()
        try:
            aside.rename(folder)
        except OSError:
            # Another run was faster, and may be reading its own.
            if not (folder / _DONE).exists():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove what killed or finished runs left: nothing here is read a week later."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if time.time() - path.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
