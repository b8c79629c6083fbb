"""Batches for a model, assembled from decoded blocks.

Shape suffixes: B rows of this rank, D dense columns, F sparse columns, N ids of a batch, C rows a block can hold.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from rec.core.ids import PADDING
from rec.data.layout import Layout

# Rows that are turned from columns into rows at a time: such a tile stays in the fastest cache.
_TILE_ROWS = 1024
NO_ROW_KEY = -1


@dataclass(frozen=True)
class Batch:
    """One rank's rows of a step, as CPU tensors.

    ``values_N`` (int64) holds the ids of the first sparse column for all rows, then the second's, in schema order;
    ``lengths_FB`` (int32) says how many each row has. A column with one id a row always has length 1; a list is as long
    as it is, and 0 both where it is empty and where it is missing. ``dense_BD``, ``label_B`` and ``weight_B`` are
    float32. ``weight_B`` is 1, and 0 in the rows that pad the last batch of an evaluation; those have ids 0 and row key
    -1. ``row_key_B`` (int64) is there in evaluation only.
    """

    dense_BD: torch.Tensor
    values_N: torch.Tensor
    lengths_FB: torch.Tensor
    label_B: torch.Tensor
    weight_B: torch.Tensor
    row_key_B: torch.Tensor | None = None


@dataclass(frozen=True)
class Ragged:
    """A list column of a block: row c owns ``values[start_C[c] : start_C[c] + length_C[c]]``."""

    values: np.ndarray
    start_C: np.ndarray
    length_C: np.ndarray

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of rows [start, stop), one row after the other, and the lengths of those rows."""
        length, first = self.length_C[start:stop], self.start_C[start:stop]
        # Place of a value in its row: a running count, less what all rows before it hold.
        within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
        return self.values[np.repeat(first, length) + within], length


@dataclass
class Block:
    """Decoded rows of a window, in the order in which steps take them; column-wise, reused for a later window."""

    dense_DC: np.ndarray
    flat_FC: np.ndarray
    label_C: np.ndarray
    row_key_C: np.ndarray | None
    ragged: dict[int, Ragged] = field(default_factory=dict)

    @classmethod
    def empty(cls, layout: Layout, num_rows: int) -> "Block":
        return cls(
            dense_DC=np.empty((len(layout.dense), num_rows), np.float32),
            flat_FC=np.empty((len(layout.flat), num_rows), layout.id_dtype),
            label_C=np.empty(num_rows, np.float32),
            row_key_C=np.empty(num_rows, np.int64) if layout.row_key else None,
        )


class BatchBuilder:
    """Fills one batch after another with slices of blocks."""

    def __init__(self, layout: Layout, num_rows: int):
        self.layout, self.num_rows = layout, num_rows
        self._start()

    def _start(self) -> None:
        # New memory for each batch: whoever holds an earlier one keeps it.
        B, layout = self.num_rows, self.layout
        self._filled = 0
        self._dense_BD = np.empty((B, len(layout.dense)), np.float32)
        self._flat_FB = np.empty((len(layout.flat), B), np.int64)
        self._label_B = np.empty(B, np.float32)
        self._row_key_B = np.empty(B, np.int64) if layout.row_key else None
        self._lists: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {k: [] for k in layout.lists}

    def add(self, block: Block, start: int, stop: int) -> None:
        """Append rows [start, stop) of a block."""
        rows = slice(self._filled, self._filled + stop - start)
        _copy_transposed(self._dense_BD[rows], block.dense_DC[:, start:stop])
        self._flat_FB[:, rows] = block.flat_FC[:, start:stop]
        self._label_B[rows] = block.label_C[start:stop]
        if self._row_key_B is not None and block.row_key_C is not None:
            self._row_key_B[rows] = block.row_key_C[start:stop]
        for k, pieces in self._lists.items():
            pieces.append(block.ragged[k].rows(start, stop))
        self._filled = rows.stop

    def build(self) -> Batch:
        """Return the batch, its missing rows padded, and start the next one."""
        num_real = self._filled
        self._dense_BD[num_real:], self._flat_FB[:, num_real:], self._label_B[num_real:] = 0, PADDING, 0
        if self._row_key_B is not None:
            self._row_key_B[num_real:] = NO_ROW_KEY
        weight_B = np.ones(self.num_rows, np.float32)
        weight_B[num_real:] = 0
        values_N, lengths_FB = self._ids()
        batch = Batch(
            dense_BD=torch.from_numpy(self._dense_BD),
            values_N=torch.from_numpy(values_N),
            lengths_FB=torch.from_numpy(lengths_FB),
            label_B=torch.from_numpy(self._label_B),
            weight_B=torch.from_numpy(weight_B),
            row_key_B=None if self._row_key_B is None else torch.from_numpy(self._row_key_B),
        )
        self._start()
        return batch

    def _ids(self) -> tuple[np.ndarray, np.ndarray]:
        lengths_FB = np.ones((len(self.layout.sparse), self.num_rows), np.int32)
        if not self._lists:
            return self._flat_FB.reshape(-1), lengths_FB
        columns = dict(zip(self.layout.flat, self._flat_FB))
        for k, pieces in self._lists.items():
            lengths_FB[k] = 0
            lengths_FB[k, : self._filled] = np.concatenate([np.zeros(0, np.int64), *(length for _, length in pieces)])
            columns[k] = np.concatenate([np.zeros(0, np.int64), *(values for values, _ in pieces)])
        return np.concatenate([columns[k] for k in range(len(columns))]), lengths_FB


def _copy_transposed(out_BD: np.ndarray, columns_DB: np.ndarray) -> None:
    for start in range(0, len(out_BD), _TILE_ROWS):
        out_BD[start : start + _TILE_ROWS] = columns_DB[:, start : start + _TILE_ROWS].T
