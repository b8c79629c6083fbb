"""The model that decides the labels: what the best possible learner would know.

logit = intercept + Σ smooth terms of the integers + Σ column effects + Σ products of factors within groups of columns.
It reads a row as an encoder leaves it: a missing or negative integer counts as 0, a missing category is a value like
any other, and what lies beyond ``LAST_RANK`` has no effect. So nothing is planted that encoding takes away.
"""

from dataclasses import dataclass

import numpy as np

from rec.datasets.columns import DENSE, SPARSE, SparseColumn, dense_scale
from rec.datasets.exact import log2_1p, mix32, sigmoid, signed_unit

INTERCEPT = -2.75
LAST_RANK = 8191
# A value's effect is worn down to 1/√2 of its size at this rank: frequent values carry most of what can be learnt.
_EFFECT_FADE_RANK = 15
_FACTOR_FADE_RANK = 10
_NUM_FACTORS = 2

# Weight of t and of the bump 1 / (1 + t²), t being the standardised log2(1 + value), by integer column.
DENSE_TERMS = {
    0: (0.40, 0.0),
    1: (0.15, 1.3),
    2: (0.0, -1.2),
    4: (-0.50, 0.0),
    5: (-0.15, 1.2),
    6: (0.40, 0.0),
    7: (0.35, 0.0),
    8: (0.0, 1.2),
    10: (0.45, 0.0),
    12: (0.0, -1.0),
}
# Deviation of the effects of a column's values, from the most telling column down.
_TELLING_COLUMNS = (13, 5, 22, 4, 16, 7, 1, 0, 17, 10, 14, 6, 24, 12, 18, 21)
EFFECT_SCALE = {c: 0.35 * 0.9**i for i, c in enumerate(_TELLING_COLUMNS)}
EFFECT_SCALE |= dict.fromkeys((2, 3, 8, 9, 11, 15, 19, 20, 23, 25), 0.09)
# Columns whose factors multiply each other, every pair of a group, and the deviation of one product.
FACTOR_GROUPS = (((5, 13, 16, 22), 0.25), ((1, 4, 7, 24), 0.05))


@dataclass(frozen=True)
class DayTables:
    """Effect and factors of the value at each rank on one day; slot 0 is missing, the last is every rank beyond."""

    effect: dict[int, np.ndarray]
    factors: dict[int, np.ndarray]


class PlantedModel:
    """The labels' model under one seed: another seed gives every value other effects."""

    def __init__(self, seed: int):
        self._seed = seed
        log2_E = log2_1p(dense_scale())
        self._dense = {j: _smooth(log2_E, j).astype(np.float32) for j in DENSE_TERMS}

    def tables(self, day: int) -> DayTables:
        """Return the tables of a day; a renewed rank has other effects from that day on."""
        effect, factors = {}, {}
        for c, scale in EFFECT_SCALE.items():
            effect[c] = self._numbers(c, day, use=0, fade_rank=_EFFECT_FADE_RANK, deviation=scale)
        for members, scale in FACTOR_GROUPS:
            root = float(np.sqrt(scale / np.sqrt(float(_NUM_FACTORS))))
            for c in members:
                factors[c] = np.stack(
                    [
                        self._numbers(c, day, use=1 + k, fade_rank=_FACTOR_FADE_RANK, deviation=root)
                        for k in range(_NUM_FACTORS)
                    ]
                )
        return DayTables(effect, factors)

    def probability(self, scale_index_DB: np.ndarray, slot_FB: np.ndarray, tables: DayTables) -> np.ndarray:
        """Return the probability of label 1 of each row, from integers as indices into the scale and ranks as slots."""
        logit = np.full(slot_FB.shape[1], INTERCEPT, np.float32)
        for j, term_E in self._dense.items():
            logit += term_E[scale_index_DB[j]]
        for c, effect_S in tables.effect.items():
            logit += effect_S[slot_FB[c]]
        for members, _ in FACTOR_GROUPS:
            for k in range(_NUM_FACTORS):
                logit += _sum_of_pairs([tables.factors[c][k][slot_FB[c]] for c in members])
        return sigmoid(logit.astype(np.float64))

    def _numbers(self, column: int, day: int, *, use: int, fade_rank: int, deviation: float) -> np.ndarray:
        """Return a number a slot, tied to the value there: over the rows of day 0 of mean 0 and the given deviation.

        Without the mean taken off, a product of factors would be column effects in disguise.
        """
        spec = SPARSE[column]
        salt = int(mix32(np.array([self._seed * 8191 + column * 64 + use]), 0x7F4A7C15)[0])
        fade = 4096 * _fade(fade_rank)
        first, today = (
            np.rint(signed_unit(spec.identity(np.arange(LAST_RANK + 2), d), salt) * fade).astype(np.int64)
            for d in (0, day)
        )
        # Integer sums: those of floats depend on the CPU.
        weight = _slot_weights(spec)
        mean = int((first * weight).sum()) // int(weight.sum())
        spread = np.sqrt(float(((first - mean) ** 2 * weight).sum()) / float(weight.sum()))
        return (deviation * (today - mean) / spread).astype(np.float32)


def slot(rank_B: np.ndarray, missing_B: np.ndarray) -> np.ndarray:
    """Return the slot of each rank: 0 where missing, else the rank, those beyond LAST_RANK as one."""
    return np.where(missing_B, 0, np.minimum(rank_B, LAST_RANK + 1))


def _smooth(log2_E: np.ndarray, column: int) -> np.ndarray:
    weight, bump = DENSE_TERMS[column]
    t = (log2_E - DENSE[column].center) / DENSE[column].spread
    return weight * t + bump / (1.0 + t * t)


def _fade(half_rank: int) -> np.ndarray:
    """Return what is left of an effect at each slot; nothing in the last."""
    rank = np.arange(LAST_RANK + 2)
    return np.sqrt(half_rank / (half_rank + rank.astype(np.float64))) * (rank <= LAST_RANK)


def _slot_weights(spec: SparseColumn) -> np.ndarray:
    """Return integers proportional to how often each slot occurs; they add up to at most 2^30."""
    _, width_S, weight_S = spec.segments
    total = float(weight_S.sum())
    rank = np.repeat(np.floor((1.0 - spec.missing) * 2.0**30 * weight_S / width_S / total), width_S)[:LAST_RANK]
    weight = np.zeros(LAST_RANK + 2, np.int64)
    weight[0] = int(spec.missing * 2**30)
    weight[1 : len(rank) + 1] = rank
    weight[-1] = 2**30 - weight.sum()
    return weight


def _sum_of_pairs(factor_MB: list[np.ndarray]) -> np.ndarray:
    """Return Σ over pairs of the product, as (square of the sum − sum of squares) / 2."""
    total, squares = factor_MB[0].copy(), factor_MB[0] * factor_MB[0]
    for factor_B in factor_MB[1:]:
        total += factor_B
        squares += factor_B * factor_B
    return (total * total - squares) * np.float32(0.5)
