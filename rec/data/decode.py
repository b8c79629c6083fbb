"""From a window of row groups to a block of checked, shuffled columns."""

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rec.core import ids
from rec.core.errors import IdRangeError, LoaderError, TableError
from rec.core.schema import Column
from rec.data.batch import Block, Ragged
from rec.data.layout import Layout
from rec.data.schedule import Part, Schedule, Window
from rec.data.snapshot import DataFile, Snapshot, unreadable_error

OpenFile = Callable[[int], pq.ParquetFile]


@dataclass(frozen=True)
class _Place:
    """Where a column's rows come from, for an error that names it."""

    file: DataFile
    row_group: int

    def __str__(self) -> str:
        return f"{self.file.path} (row group {self.row_group})"


@dataclass
class WindowDecoder:
    """Decodes windows of one snapshot; shared by all worker threads, each with its own open files.

    ``free`` hands back blocks that were used up: fresh memory for each would cost as much as the decoding.
    """

    snapshot: Snapshot
    layout: Layout
    schedule: Schedule
    free: "queue.SimpleQueue[Block]" = field(default_factory=queue.SimpleQueue)

    def open(self, file: int) -> pq.ParquetFile:
        """Open a file of the snapshot. Raises TableError where it was removed since."""
        path = self.snapshot.files[file].path
        try:
            return pq.ParquetFile(self.snapshot.filesystem.open_input_file(path))
        except FileNotFoundError:
            raise TableError.of_removed_file(self.snapshot.uri, self.snapshot.version, path) from None

    def decode(self, window: Window, open_file: OpenFile) -> Block:
        """Return the window's rows, shuffled, in a block. Raises LoaderError for a null, IdRangeError for an id."""
        parts = [self._read(part, open_file) for part in window.parts]
        order = self.schedule.permutation(window)
        block, n, layout = self._block(), window.num_rows, self.layout
        for d, column in enumerate(layout.dense):
            _gather(block.dense_DC[d, :n], [_dense(column, *part) for part in parts], order)
        for row, k in enumerate(layout.flat):
            _gather(block.flat_FC[row, :n], [_flat_ids(layout.sparse[k], *part) for part in parts], order)
        block.ragged = {k: _list_ids(layout.sparse[k], parts, order) for k in layout.lists}
        _gather(block.label_C[:n], [_present(layout.label, *part) for part in parts], order)
        if layout.row_key and block.row_key_C is not None:
            _gather(block.row_key_C[:n], [_present(layout.row_key, *part) for part in parts], order)
        return block

    def _block(self) -> Block:
        try:
            return self.free.get_nowait()
        except queue.Empty:
            return Block.empty(self.layout, self.schedule.max_window_rows)

    def _read(self, part: Part, open_file: OpenFile) -> tuple[pa.Table, _Place]:
        """Return the part's labelled rows."""
        r, snapshot = part.row_group, self.snapshot
        position, group = int(snapshot.file_R[r]), int(snapshot.group_R[r])
        file = snapshot.files[position]
        names = [column.name for column in self.layout.columns if column.name not in file.missing]
        try:
            rows = open_file(position).read_row_group(group, columns=names, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise unreadable_error(file.path, error) from None
        if snapshot.num_labelled_R[r] < snapshot.num_rows_R[r]:
            rows = rows.filter(pc.is_valid(rows.column(self.layout.label.name)))
        return rows.slice(part.start, part.num_rows), _Place(file, group)


def _gather(out: np.ndarray, pieces: Sequence[np.ndarray], order: np.ndarray | None) -> None:
    column = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    if order is None:
        out[:] = column
    else:
        # mode="clip" lets NumPy write into ``out`` itself; the default goes through a copy of it.
        np.take(column.astype(out.dtype, copy=False), order, out=out, mode="clip")


def _present(column: Column, rows: pa.Table, place: _Place) -> np.ndarray:
    """Return a column's values. Raises LoaderError where one is null."""
    values = rows.column(column.name)
    if values.null_count:
        row = int(np.argmax(pc.is_null(values).to_numpy()))
        raise LoaderError(
            f"{place}: column {column.name!r} is null in row {row} of those read; "
            "an encoded column has a value in every row, write its day again"
        )
    return values.to_numpy()


def _dense(column: Column, rows: pa.Table, place: _Place) -> np.ndarray:
    if column.name in place.file.missing:
        return np.zeros(len(rows), np.float32)
    return _present(column, rows, place)


def _flat_ids(column: Column, rows: pa.Table, place: _Place) -> np.ndarray:
    if column.name in place.file.missing:
        return np.full(len(rows), ids.MISSING, np.int32)
    return _checked_ids(column, _present(column, rows, place), place)


def _checked_ids(column: Column, values: np.ndarray, place: _Place) -> np.ndarray:
    """Return ``values``. Raises IdRangeError where an embedding table has no such row: a kernel would clamp it."""
    assert column.num_embeddings
    # Read as unsigned, a negative id is a huge one: a single maximum covers both ends.
    unsigned = values.view(f"u{values.dtype.itemsize}")
    if len(values) and int(unsigned.max()) >= column.num_embeddings:
        wrong = int(values[np.argmax(unsigned >= column.num_embeddings)])
        raise IdRangeError(
            f"{place}: column {column.name!r} holds id {wrong}, its table has rows 0 to {column.num_embeddings - 1}; "
            "write the day again with the state that the table's schema is of"
        )
    return values


def _list_ids(column: Column, parts: Sequence[tuple[pa.Table, _Place]], order: np.ndarray | None) -> Ragged:
    """Return a list column's values and the shuffled place of each row's; a missing list has length 0."""
    values, starts, lengths, offset = [], [], [], 0
    for rows, place in parts:
        if column.name in place.file.missing:
            lengths.append(np.zeros(len(rows), np.int64))
            starts.append(lengths[-1])
            continue
        lists = rows.column(column.name)
        flat = lists.combine_chunks().flatten() if lists.num_chunks != 1 else lists.chunk(0).flatten()
        if flat.null_count:
            raise LoaderError(
                f"{place}: column {column.name!r} holds a null inside a list; drop it, write the day again"
            )
        length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
        values.append(_checked_ids(column, flat.to_numpy(), place))
        starts.append(offset + np.cumsum(length) - length)
        lengths.append(length)
        offset += len(flat)
    start, length = np.concatenate(starts), np.concatenate(lengths)
    if order is not None:
        start, length = start[order], length[order]
    return Ragged(np.concatenate(values or [np.zeros(0, np.int64)]), start, length)
