"""The files and row groups of one version of a feature table, read from the Delta log without a JVM.

Everything that can go wrong with a version is found here, before the first step: files that were removed, table
features this reader does not know, days that are not there, columns that are gone or were retyped.
"""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSystem, FileType, LocalFileSystem

from rec.core.errors import DayError, TableError
from rec.core.tables import FeatureTable
from rec.data.layout import Layout

# Features that change nothing for whoever reads whole files by their own names.
READABLE_FEATURES = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
_FOOTER_THREADS = 8


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a version; ``missing`` names the columns of later days that it lacks."""

    path: str
    day: int | None
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Snapshot:
    """R row groups in table order (day, path, position). ``num_labelled_R`` counts rows that have a label."""

    uri: str
    version: int
    days: tuple[int, ...]
    filesystem: FileSystem
    files: tuple[DataFile, ...]
    file_R: np.ndarray
    group_R: np.ndarray
    num_rows_R: np.ndarray
    num_labelled_R: np.ndarray

    @property
    def num_rows(self) -> int:
        return int(self.num_rows_R.sum())

    @property
    def num_labelled(self) -> int:
        return int(self.num_labelled_R.sum())

    @property
    def supplied(self) -> dict[str, int]:
        """Labelled rows by column for which a missing value is supplied, because the column is of a later day."""
        rows: dict[str, int] = {}
        for position, file in enumerate(self.files):
            labelled = int(self.num_labelled_R[self.file_R == position].sum()) if file.missing else 0
            for name in sorted(file.missing):
                rows[name] = rows.get(name, 0) + labelled
        return rows


def read_snapshot(table: FeatureTable, days: Iterable[int], layout: Layout) -> Snapshot:
    """Return the row groups of some days of a table. Reads every file's footer and no rows, save where a footer
    does not tell how many labels are missing.

    Raises DayError, TableError and SchemaDriftError as the module says.
    """
    wanted = tuple(sorted(set(days)))
    filesystem, files = list_files(table.uri, table.version, wanted)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        read = list(pool.map(lambda file: _read_file(filesystem, file, layout), files))
    files, counts = [file for file, _ in read], [groups for _, groups in read]
    sizes = [len(groups) for groups in counts]
    rows_R2 = np.array([pair for groups in counts for pair in groups], np.int64).reshape(-1, 2)
    return Snapshot(
        uri=table.uri,
        version=table.version,
        days=wanted,
        filesystem=filesystem,
        files=tuple(files),
        file_R=np.repeat(np.arange(len(files)), np.array(sizes, np.int64)),
        group_R=np.concatenate([np.arange(size) for size in sizes]) if sizes else np.zeros(0, np.int64),
        num_rows_R=rows_R2[:, 0],
        num_labelled_R=rows_R2[:, 1],
    )


def list_files(uri: str, version: int, days: Sequence[int] | None = None) -> tuple[FileSystem, list[DataFile]]:
    """Return a version's files, those of ``days`` alone where given, by day and path.

    Raises TableError where the version or one of its files is gone, and DayError for a day the version does not hold.
    """
    filesystem, root = _filesystem(uri)
    actions = pa.table(_open(uri, version).get_add_actions(flatten=True)).to_pylist()
    # Not file_uris(): it percent-encodes the whole path, so a folder with a space in its name would not be found.
    files = [DataFile(f"{root}/{action['path']}", action.get("partition.day")) for action in actions]
    if days is not None:
        held = sorted({file.day for file in files if file.day is not None})
        absent = [day for day in days if day not in held]
        if absent:
            raise DayError(f"{uri} version {version}: day {absent[0]} is not in the table; it holds days {held}")
        files = [file for file in files if file.day in days]
    files.sort(key=lambda file: (file.day is not None, file.day or 0, file.path))
    for file, info in zip(files, filesystem.get_file_info([file.path for file in files])):
        if info.type != FileType.File:
            raise TableError.of_removed_file(uri, version, file.path)
    return filesystem, files


def unreadable_error(path: str, error: Exception) -> TableError:
    reason = " ".join(str(error).split())
    return TableError(f"{path}: is not a whole Parquet file ({reason}); write its day again")


def _open(uri: str, version: int) -> DeltaTable:
    try:
        table = DeltaTable(uri, version=version)
    except DeltaError as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{uri} version {version}: cannot be opened ({reason}); {_newest(uri)}") from None
    protocol, settings = table.protocol(), table.metadata().configuration
    features = set(protocol.reader_features or [])
    if protocol.min_reader_version == 2 or settings.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    refused = sorted(features - READABLE_FEATURES)
    if refused:
        raise TableError(
            f"{uri} version {version}: table feature {refused[0]!r} is on, its rows cannot be read from whole files; "
            "write the table with it off"
        )
    return table


def _newest(uri: str) -> str:
    try:
        return f"the newest version is {DeltaTable(uri).version()}"
    except DeltaError:
        return "no Delta table is there"


def _filesystem(uri: str) -> tuple[FileSystem, str]:
    if "://" in uri:
        filesystem, root = FileSystem.from_uri(uri)
    else:
        filesystem, root = LocalFileSystem(), os.path.abspath(uri)
    # Memory-mapped files spare a copy of every page.
    return (LocalFileSystem(use_mmap=True) if isinstance(filesystem, LocalFileSystem) else filesystem), root.rstrip("/")


def _read_file(filesystem: FileSystem, file: DataFile, layout: Layout) -> tuple[DataFile, list[tuple[int, int]]]:
    """Return a file with the columns it lacks, and (rows, labelled rows) of each of its row groups."""
    try:
        return _read_footer(filesystem, file, layout)
    except (pa.ArrowException, OSError) as error:
        raise unreadable_error(file.path, error) from None


def _read_footer(filesystem: FileSystem, file: DataFile, layout: Layout) -> tuple[DataFile, list[tuple[int, int]]]:
    with pq.ParquetFile(filesystem.open_input_file(file.path)) as parquet:
        # A file of a day before a column's first may hold it: then with what its encoding of missing is.
        missing = layout.missing_from(file.day) - set(parquet.schema_arrow.names)
        layout.check_file(parquet.schema_arrow, file.path, missing)
        leaves = [parquet.schema.column(k).path for k in range(len(parquet.schema))]
        label = leaves.index(layout.label.name)
        counts = []
        for group in range(parquet.num_row_groups):
            statistics = parquet.metadata.row_group(group).column(label).statistics
            num_rows = parquet.metadata.row_group(group).num_rows
            if statistics is not None and statistics.has_null_count:
                num_unlabelled = statistics.null_count
            else:
                num_unlabelled = parquet.read_row_group(group, columns=[layout.label.name]).column(0).null_count
            counts.append((num_rows, num_rows - num_unlabelled))
        return replace(file, missing=missing), counts
