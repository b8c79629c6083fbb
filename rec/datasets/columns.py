"""The columns of a Criteo-shaped log: how a row's integers and categories are drawn.

Shares of missing values, spread of the integers and sizes of the columns follow the Kaggle file, cut at a million
values a column. B: rows of a chunk, S: segments of ranks, E: steps of the integer scale.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rec.datasets.exact import OCTAVE_STEPS, bell, bell_deviation, exp2_steps, mix32, power_eighths

# Integers stop below 2^23, so seven digits always hold one.
_MAX_STEP = 23 * OCTAVE_STEPS - 1
# Ranks are drawn one by one up to here, then in segments of about half a percent of the rank.
_SINGLE_RANKS = 512
# Below this rank a value lives for ever; above, one in 64 gives way to a new one each day.
_STABLE_RANKS = 256
_RENEWAL_DAYS_LOG2 = 6
_GENERATION_SHIFT = 20


@dataclass(frozen=True)
class DenseColumn:
    """Integers floor(2^x), x bell-shaped around ``center`` octaves with deviation ``spread``."""

    center: float
    spread: float
    missing: float
    negative: float = 0.0

    def draw(self, bits_B: np.ndarray) -> np.ndarray:
        """Return each row's index into :func:`dense_scale`."""
        slope = round(self.spread * OCTAVE_STEPS * 65536 / bell_deviation())
        steps = (bell(bits_B) * slope >> 16) + round(self.center * OCTAVE_STEPS)
        return np.clip(steps, -1, _MAX_STEP) + 1


def dense_scale() -> np.ndarray:
    """Return the integer of each scale index: 0 first, then floor(2^(step / OCTAVE_STEPS)) from step 0 on."""
    return np.concatenate([[0], np.floor(exp2_steps(np.arange(_MAX_STEP + 1)))]).astype(np.int64)


@dataclass(frozen=True)
class SparseColumn:
    """Values by rank 1 … ``cardinality`` with probability ∝ (rank + ``offset``)^−(``eighths`` / 8)."""

    cardinality: int
    eighths: int
    offset: int
    missing: float

    @cached_property
    def segments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (first rank_S, width_S, weight_S); ranks of one segment are equally likely."""
        edges = [1]
        while edges[-1] <= self.cardinality:
            edges.append(edges[-1] + max(1, edges[-1] // 256 if edges[-1] > _SINGLE_RANKS else 1))
        edges[-1] = self.cardinality + 1
        first = np.array(edges[:-1], np.int64)
        width = np.diff(edges)
        middle = first + (width - 1) / 2.0 + self.offset
        weight = np.floor(2.0**40 * width / power_eighths(middle, self.eighths)).astype(np.int64)
        return first, width, weight

    @cached_property
    def _upper(self) -> np.ndarray:
        total = np.cumsum(self.segments[2])
        return np.floor(total[:-1] / float(total[-1]) * 2.0**32).astype(np.uint32)

    def draw(self, bits_B: np.ndarray) -> np.ndarray:
        """Return each row's rank, int64."""
        first_S, width_S, _ = self.segments
        segment_B = np.searchsorted(self._upper, (bits_B >> np.uint64(32)).astype(np.uint32), side="right")
        within_B = (bits_B & np.uint64(0xFFFFFFFF)).astype(np.int64) * width_S[segment_B] >> 32
        return first_S[segment_B] + within_B

    def identity(self, rank_B: np.ndarray, day: int) -> np.ndarray:
        """Return the number of the value that holds a rank on a day; a renewed rank holds one not seen before."""
        if self.cardinality <= _STABLE_RANKS:
            return rank_B
        phase = mix32(rank_B, 0x2545F491).astype(np.int64) & (2**_RENEWAL_DAYS_LOG2 - 1)
        generation = (day + 2**_RENEWAL_DAYS_LOG2 - 1 - phase) >> _RENEWAL_DAYS_LOG2
        return rank_B + ((generation * (rank_B > _STABLE_RANKS)) << _GENERATION_SHIFT)


DENSE = (
    DenseColumn(0.6, 2.0, 0.45),
    DenseColumn(2.3, 2.9, 0.0, negative=0.10),
    DenseColumn(1.9, 2.6, 0.21, negative=0.002),
    DenseColumn(1.7, 1.7, 0.21),
    DenseColumn(11.0, 3.2, 0.026),
    DenseColumn(4.0, 2.9, 0.22),
    DenseColumn(1.4, 2.7, 0.04),
    DenseColumn(2.7, 1.7, 0.0005),
    DenseColumn(4.8, 2.6, 0.04),
    DenseColumn(-0.9, 1.0, 0.45),
    DenseColumn(0.6, 1.6, 0.04),
    DenseColumn(-1.7, 1.9, 0.76),
    DenseColumn(1.7, 1.7, 0.21, negative=0.001),
)

SPARSE = (
    SparseColumn(1_460, 9, 1, 0.0),
    SparseColumn(583, 8, 2, 0.0),
    SparseColumn(1_000_000, 8, 4, 0.034),
    SparseColumn(400_000, 8, 4, 0.034),
    SparseColumn(305, 10, 1, 0.0),
    SparseColumn(24, 8, 1, 0.12),
    SparseColumn(12_517, 8, 8, 0.0),
    SparseColumn(633, 9, 1, 0.0),
    SparseColumn(3, 8, 0, 0.0),
    SparseColumn(93_145, 8, 4, 0.0),
    SparseColumn(5_683, 8, 6, 0.0),
    SparseColumn(1_000_000, 8, 6, 0.034),
    SparseColumn(3_194, 8, 4, 0.0),
    SparseColumn(27, 8, 1, 0.0),
    SparseColumn(14_992, 8, 8, 0.0),
    SparseColumn(900_000, 8, 4, 0.034),
    SparseColumn(10, 6, 0, 0.0),
    SparseColumn(5_652, 9, 2, 0.0),
    SparseColumn(2_173, 9, 1, 0.44),
    SparseColumn(4, 6, 0, 0.44),
    SparseColumn(1_000_000, 7, 4, 0.034),
    SparseColumn(18, 8, 1, 0.76),
    SparseColumn(15, 6, 1, 0.0),
    SparseColumn(286_181, 8, 4, 0.034),
    SparseColumn(105, 8, 1, 0.44),
    SparseColumn(142_572, 8, 4, 0.44),
)
