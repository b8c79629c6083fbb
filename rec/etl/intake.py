"""Finding a source's files and measuring each of them, before any of it is parsed."""

import errno
import glob
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.errors import InputError, RecError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of a source. ``layout`` is labelled, unlabelled, header, empty or parquet; ``day`` is what its path tells.

    ``num_lines`` counts physical lines (rows of a Parquet file) at intake: what the ledger's bins must add up to.
    """

    path: str
    sha256: str
    num_bytes: int
    modified_ns: int
    num_lines: int
    layout: str
    day: int | None = None
    warnings: tuple[str, ...] = ()

    def check_unchanged(self) -> None:
        """Raise InputError where the file is not what intake measured."""
        now = os.stat(self.path) if os.path.exists(self.path) else None
        if now is None or (now.st_size, now.st_mtime_ns) != (self.num_bytes, self.modified_ns):
            found = f"{now.st_size:,} bytes" if now else "nothing"
            raise InputError(
                f"{self.path}: {self.num_bytes:,} bytes at intake, {found} after its lines were parsed; "
                "it changed meanwhile, read the source again when it is whole"
            )


def find_files(path: str | Path) -> list[str]:
    """Return the absolute paths of a file, of the files below a folder or of a glob's matches, in path order.

    Names that start with a dot or an underscore are no data. Raises InputError where nothing is left.
    """
    text = os.fspath(path)
    local = text.removeprefix("file://") if text.startswith("file:/") else text
    if "://" in local:
        raise InputError(f"source {text}: only paths of a file system are read; mount it or copy the files")
    found = [local] if os.path.exists(local) else sorted(glob.glob(local, recursive=True))
    if not found:
        raise InputError(f"source {text}: no such file or folder; check the path, or the pattern")
    files = sorted({os.path.abspath(f) for match in found for f in _files_of(Path(match))})
    if not files:
        raise InputError(f"source {text}: holds no data file (names that start with . or _ are none); add one")
    return files


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [] if path.name.startswith((".", "_")) else [path]
    if (path / "_delta_log").is_dir():
        raise InputError(f"source {path}: a Delta table, whose removed files would be read too; export it to Parquet")
    below = (p for p in path.rglob("*") if p.is_file())
    return [p for p in below if not any(part.startswith((".", "_")) for part in p.relative_to(path).parts)]


def default_work_dir() -> str:
    """Return a folder of this user for unpacked parts; executors on other machines need a shared one instead."""
    return os.path.join(tempfile.gettempdir(), f"reclake-{os.getuid()}")


def measure_files(spark: "SparkSession", files: list[str], measure: Callable[[str], Any]) -> list[Any]:
    """Return ``measure(path)`` of every file, one Spark task each, in order.

    Raises the first file's RecError as it is, without a task's traceback.
    """
    results = spark.sparkContext.parallelize(files, len(files)).map(_Guarded(measure)).collect()
    for result in results:
        if isinstance(result, RecError):
            raise result
    return results


class _Guarded:
    """Returns an error a user can mend instead of raising it: a raising task is tried again and ends in a traceback."""

    def __init__(self, measure: Callable[[str], Any]):
        self.measure = measure

    def __call__(self, path: str) -> Any:
        try:
            return self.measure(path)
        except RecError as error:
            return error
        except OSError as error:
            if error.errno == errno.ENOSPC:
                return InputError(f"{path}: no space left beside it or in source.work_dir; free some and run it again")
            return InputError(f"{path}: cannot be read: {error.strerror}; check it on every executor")
