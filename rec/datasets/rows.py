"""Rows of one chunk: drawn from raw random bits, so that a row depends on seed, day and its place alone.

D: 13 integer columns, F: 26 categorical columns, B: rows.
"""

from dataclasses import dataclass, fields

import numpy as np

from rec.datasets.columns import DENSE, SPARSE, dense_scale
from rec.datasets.exact import mix32
from rec.datasets.planted import DayTables, PlantedModel, slot

CHUNK_ROWS = 16_384
# A chunk draws these uint64 a row: one a column, one for the label, and 16 bits a column and two signs for what is
# missing or negative.
_NUM_COLUMNS = len(DENSE) + len(SPARSE)
_NUM_SHARES = _NUM_COLUMNS + len(DENSE)
_NUM_DRAWS = _NUM_COLUMNS + 1 + _NUM_SHARES // 4


@dataclass(frozen=True)
class Rows:
    """``value_DB`` int64 and ``key_FB`` uint32 mean nothing where missing; ``prob_B`` is the planted probability."""

    label_B: np.ndarray
    value_DB: np.ndarray
    dense_missing_DB: np.ndarray
    key_FB: np.ndarray
    sparse_missing_FB: np.ndarray
    prob_B: np.ndarray

    def head(self, num_rows: int) -> "Rows":
        """Return the first rows, all where there are fewer."""
        return Rows(*(getattr(self, f.name)[..., :num_rows] for f in fields(self)))


class RowGenerator:
    """Draws the chunks of one day."""

    def __init__(self, seed: int, day: int):
        self._seed, self._day = seed, day
        self._scale_E = dense_scale()
        self._model = PlantedModel(seed)
        self._tables: DayTables = self._model.tables(day)

    def chunk(self, number: int) -> Rows:
        """Return chunk ``number`` of the day, CHUNK_ROWS rows."""
        bits = np.random.SFC64([self._seed, self._day, number]).random_raw(_NUM_DRAWS * CHUNK_ROWS)
        bits = bits.reshape(_NUM_DRAWS, CHUNK_ROWS)
        share_B16 = bits[_NUM_COLUMNS + 1 :].view(np.uint16).reshape(_NUM_SHARES, CHUNK_ROWS)
        limits = [round(share * 65536) for share in (*(c.missing for c in DENSE), *(c.missing for c in SPARSE))]
        missing = share_B16[:_NUM_COLUMNS] < np.array(limits)[:, None]
        dense_missing, sparse_missing = missing[: len(DENSE)], missing[len(DENSE) :]
        index, value = self._integers(bits[: len(DENSE)], share_B16[_NUM_COLUMNS:], dense_missing)
        key, slots = self._categories(bits[len(DENSE) : _NUM_COLUMNS], sparse_missing)
        prob = self._model.probability(index, slots, self._tables)
        label = (bits[_NUM_COLUMNS] >> np.uint64(11)) < (prob * 2.0**53).astype(np.uint64)
        return Rows(label, value, dense_missing, key, sparse_missing, prob)

    def _integers(
        self, bits_DB: np.ndarray, sign_DB: np.ndarray, missing_DB: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (index into the scale, 0 where missing or negative; value)."""
        index = np.empty(bits_DB.shape, np.int64)
        value = np.empty(bits_DB.shape, np.int64)
        for j, column in enumerate(DENSE):
            drawn = column.draw(bits_DB[j])
            negative = sign_DB[j] < round(column.negative * 65536)
            index[j] = np.where(negative | missing_DB[j], 0, drawn)
            value[j] = np.where(negative, -1 - drawn % 3, self._scale_E[drawn])
        return index, value

    def _categories(self, bits_FB: np.ndarray, missing_FB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (key, slot)."""
        key = np.empty(bits_FB.shape, np.uint32)
        slots = np.empty(bits_FB.shape, np.int64)
        for c, column in enumerate(SPARSE):
            rank = column.draw(bits_FB[c])
            key[c] = mix32(column.identity(rank, self._day), 0x01000193 * (c + 1))
            slots[c] = slot(rank, missing_FB[c])
        return key, slots
