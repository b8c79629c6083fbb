"""Exact figures of logits against 0/1 labels: the same bits however rows are split over ranks.

Logits stay float32, counts and sums are integers. A set of rows is its sorted distinct logits, each with how many
positive and negative rows have it; sums of losses are integers of 2⁻⁴⁰, rounded once per distinct logit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rec.core.errors import TrainingError
from rec.core.tables import Evaluation

_FIXED_POINT = 2**40
# A row's loss counts as no more: beyond twice of it, 2⁴⁰ths would leave int64.
_MAX_LOSS = 2.0**22


@dataclass(frozen=True)
class ScoreCounts:
    """U distinct logits, ascending, with their numbers of positive and negative rows."""

    logits_U: np.ndarray
    positive_U: np.ndarray
    negative_U: np.ndarray

    @classmethod
    def of(cls, logits_B: np.ndarray, labels_B: np.ndarray) -> "ScoreCounts":
        """Count rows. Raises TrainingError for a logit that is not finite and for a label that is not 0 or 1."""
        if not np.isfinite(logits_B).all():
            bad = logits_B[~np.isfinite(logits_B)]
            raise TrainingError(f"{len(bad)} of {len(logits_B)} logits are not finite ({bad[0]}); lower learning rates")
        if not np.isin(labels_B, (0, 1)).all():
            bad = labels_B[~np.isin(labels_B, (0, 1))]
            raise TrainingError(f"label {bad[0]} is neither 0 nor 1; clicks are labelled by these")
        return _merge(logits_B.astype(np.float32), labels_B == 1, labels_B == 0)

    @classmethod
    def merge(cls, parts: Sequence["ScoreCounts"]) -> "ScoreCounts":
        """Return the counts of all rows of the parts."""
        if not parts:
            return cls.of(np.zeros(0, np.float32), np.zeros(0))
        columns = zip(*((p.logits_U, p.positive_U, p.negative_U) for p in parts))
        return _merge(*(np.concatenate(column) for column in columns))

    def totals(self) -> "ScoreTotals":
        """Return what AUC and losses need of these rows, in integers."""
        below_U = np.cumsum(self.negative_U) - self.negative_U
        logits_U = self.logits_U.astype(np.float64)
        loss_of_positive_U, loss_of_negative_U = np.logaddexp(0, -logits_U), np.logaddexp(0, logits_U)
        return ScoreTotals(
            num_positive=int(self.positive_U.sum()),
            num_negative=int(self.negative_U.sum()),
            doubled_wins=_dot(self.positive_U, 2 * below_U + self.negative_U),
            loss=_dot(self.positive_U, _fixed(loss_of_positive_U)) + _dot(self.negative_U, _fixed(loss_of_negative_U)),
            predicted=_dot(self.positive_U + self.negative_U, _fixed(np.exp(-loss_of_positive_U))),
        )


@dataclass(frozen=True)
class ScoreTotals:
    """Integer sums over rows. ``doubled_wins`` counts pairs of a positive above a negative row twice, ties once."""

    num_positive: int
    num_negative: int
    doubled_wins: int
    loss: int
    predicted: int

    def add_above(self, above: "ScoreTotals") -> "ScoreTotals":
        """Return the totals of these rows and of others whose logits are all greater."""
        return ScoreTotals(
            num_positive=self.num_positive + above.num_positive,
            num_negative=self.num_negative + above.num_negative,
            doubled_wins=self.doubled_wins + above.doubled_wins + 2 * above.num_positive * self.num_negative,
            loss=self.loss + above.loss,
            predicted=self.predicted + above.predicted,
        )

    def evaluation(self, days: Sequence[int]) -> Evaluation:
        """Return the figures of these rows. Raises TrainingError where a class is absent: no AUC exists."""
        num_rows = self.num_positive + self.num_negative
        if not self.num_positive or not self.num_negative:
            raise TrainingError(
                f"{_name(days)}: {self.num_positive} positive and {self.num_negative} negative rows; AUC needs both "
                f"labels, choose days that hold both"
            )
        rate = self.num_positive / num_rows
        entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
        log_loss = self.loss / _FIXED_POINT / num_rows
        return Evaluation(
            days=tuple(days),
            num_rows=num_rows,
            num_positive=self.num_positive,
            auc=self.doubled_wins / (2 * self.num_positive * self.num_negative),
            log_loss=log_loss,
            normalized_entropy=float(log_loss / entropy),
            calibration=self.predicted / _FIXED_POINT / self.num_positive,
        )


def _merge(logits: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> ScoreCounts:
    # 0.0 and -0.0 are one logit to ``unique``; adding 0.0 leaves one of them.
    distinct, place = np.unique(logits + np.float32(0), return_inverse=True)
    counts = [np.zeros(len(distinct), np.int64) for _ in range(2)]
    for total, given in zip(counts, (positive, negative)):
        np.add.at(total, place, given.astype(np.int64))
    return ScoreCounts(distinct, *counts)


def _fixed(values: np.ndarray) -> np.ndarray:
    return np.rint(np.minimum(values, _MAX_LOSS) * _FIXED_POINT).astype(np.int64)


def _dot(counts: np.ndarray, values: np.ndarray) -> int:
    """Return Σ counts·values exactly; in halves of 32 bits, since the sum may leave int64."""
    high, low = values >> 32, values & 0xFFFFFFFF
    return (int(np.dot(counts, high)) << 32) + int(np.dot(counts, low))


def _name(days: Sequence[int]) -> str:
    return f"day {days[0]}" if len(days) == 1 else f"days {', '.join(map(str, days))}"
