"""How far a test AUC may be from that of other rows of the same kind: percentile bootstrap over rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rec.core.errors import TrainingError


@dataclass(frozen=True)
class Interval:
    """An AUC with the bounds that hold ``level`` of the resampled AUCs."""

    auc: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.auc:.4f} [{self.low:.4f}, {self.high:.4f}]"


def auc_interval(
    logits_B: np.ndarray | Sequence[np.ndarray],
    labels_B: np.ndarray,
    *,
    num_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the AUC of some scores with its bootstrap interval (Efron and Tibshirani 1993, chapter 13).

    Given several models' scores of the same rows, the AUC is their mean, on the same resampled rows.
    Raises TrainingError where a label is absent.
    """
    models = [logits_B] if isinstance(logits_B, np.ndarray) else list(logits_B)
    num_positive = int((labels_B == 1).sum())
    if not 0 < num_positive < len(labels_B):
        raise TrainingError(f"{num_positive} of {len(labels_B)} labels are 1; AUC needs both labels, give other rows")
    ranked = [_Ranked.of(np.asarray(scores_B), labels_B) for scores_B in models]
    ones_B = np.ones(len(labels_B), np.int64)
    generator = np.random.default_rng(seed)
    resampled: list[float] = []
    while len(resampled) < num_resamples:
        weight_B = np.bincount(generator.integers(0, len(labels_B), len(labels_B)), minlength=len(labels_B))
        # Where a resample holds one label alone, no AUC exists and another is drawn.
        if 0 < weight_B[labels_B == 1].sum() < len(labels_B):
            resampled.append(float(np.mean([r.auc(weight_B) for r in ranked])))
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(float(np.mean([r.auc(ones_B) for r in ranked])), float(low), float(high), level)


@dataclass(frozen=True)
class _Ranked:
    """Rows in order of score, sorted once for all resamples; G groups of equal score start at ``start_G``."""

    order_B: np.ndarray
    positive_B: np.ndarray
    start_G: np.ndarray

    @classmethod
    def of(cls, scores_B: np.ndarray, labels_B: np.ndarray) -> "_Ranked":
        order_B = np.argsort(scores_B, kind="stable")
        ordered_B = scores_B[order_B]
        start_G = np.concatenate([[0], np.flatnonzero(ordered_B[1:] != ordered_B[:-1]) + 1])
        return cls(order_B, labels_B[order_B] == 1, start_G)

    def auc(self, weight_B: np.ndarray) -> float:
        """Return the AUC of rows that count ``weight_B`` times each; of a tie one half."""
        ordered_B = weight_B[self.order_B]
        positive_G = np.add.reduceat(ordered_B * self.positive_B, self.start_G)
        negative_G = np.add.reduceat(ordered_B * ~self.positive_B, self.start_G)
        below_G = np.cumsum(negative_G) - negative_G
        wins = int((positive_G * (2 * below_G + negative_G)).sum())
        return wins / (2 * int(positive_G.sum()) * int(negative_G.sum()))
