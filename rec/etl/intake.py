"""Finding a source's files and measuring each of them, before any of it is parsed."""

import errno
import glob
import itertools
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

    Names that start with a dot or an underscore are no data. Raises InputError where nothing is left, and for what is
    neither file nor folder, a link to nothing included: left out without a word, its rows would be missing.
    """
    text = os.fspath(path)
    local = text.removeprefix("file://") if text.startswith("file:/") else text
    if "://" in local:
        raise InputError(f"source {text}: only paths of a file system are read; mount it or copy the files")
    found = [local] if os.path.exists(local) else sorted(glob.glob(local, recursive=True))
    if not found:
        raise InputError(f"source {text}: no such file or folder; check the path, or the pattern")
    if found != [local]:
        found = [match for match in found if _is_shown(Path(match), _fixed_part(Path(local)))]
    files = sorted({os.path.abspath(f) for match in found for f in _files_of(Path(match))})
    if not files:
        raise InputError(f"source {text}: holds no data file (names that start with . or _ are none); add one")
    return files


def _fixed_part(pattern: Path) -> Path:
    """Return the folder that every match of a pattern lies in."""
    fixed = itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts)
    return Path(*fixed)


def _is_shown(match: Path, top: Path) -> bool:
    """Tell whether no folder on the way from ``top`` to a match has a name that is no data's.

    Raises InputError where one of them is a Delta table.
    """
    for folder in (top, *itertools.takewhile(lambda p: p != top, match.parents)):
        _refuse_delta(folder)
    return not any(part.startswith((".", "_")) for part in match.relative_to(top).parts)


def _refuse_delta(folder: Path) -> None:
    if (folder / "_delta_log").is_dir():
        raise InputError(f"source {folder}: a Delta table, whose removed files would be read too; export it to Parquet")


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir() and path.name.startswith((".", "_")):
        return []
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise _no_data(path)
    _refuse_delta(path)
    return _files_below(path)


def _files_below(top: Path) -> list[Path]:
    """Return the files of a folder and of those in it, linked ones too, each folder's once: by its own path, if any."""
    files: list[Path] = []
    pending, seen = [top], set()
    while pending:
        folder = pending.pop(0)
        real = folder.resolve()
        if real in seen:
            continue
        seen.add(real)
        for path in _listed(folder):
            if path.is_file():
                files.append(path)
            elif not path.is_dir():
                raise _no_data(path)
            elif not path.is_symlink():
                pending.insert(0, path)
            elif real.is_relative_to(path.resolve()):
                raise InputError(f"source {path}: a link to {os.readlink(path)}, which it lies in; remove it")
            else:
                pending.append(path)
    return files


def _listed(folder: Path) -> list[Path]:
    try:
        return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    except OSError as error:
        raise InputError(f"source {folder}: cannot be listed: {error.strerror}; make it readable") from None


def _no_data(path: Path) -> InputError:
    if path.is_symlink():
        return InputError(f"source {path}: a link to {os.readlink(path)}, which is not there; mend it or remove it")
    return InputError(f"source {path}: neither a file nor a folder; remove it, or call it by a name that starts with _")


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
