"""Exact evaluation of rows that lie on several ranks: a sort by logit, each rank taking one range."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch

from rec.core.tables import Evaluation, Ranks
from rec.train.metrics import ScoreCounts, ScoreTotals

_SAMPLES_PER_RANK = 64


def evaluate_scores(counts: ScoreCounts, days: Sequence[int], ranks: Ranks) -> Evaluation:
    """Return the figures over the rows of all ranks, the same on every rank. Every rank must call it."""
    mine = _exchange_ranges(counts, ranks).totals() if ranks.world_size > 1 else counts.totals()
    total, *above = (ScoreTotals(**t) for t in ranks.all_gather(asdict(mine)))
    for part in above:
        total = total.add_above(part)
    return total.evaluation(days)


def _exchange_ranges(counts: ScoreCounts, ranks: Ranks) -> ScoreCounts:
    """Return all ranks' counts of the logits in this rank's range. Ranges ascend with the rank."""
    bounds = _range_bounds(counts.logits_U, ranks)
    # A bound's logit belongs to the range above it on every rank, so no logit is split.
    cuts = [0, *np.searchsorted(counts.logits_U, bounds, side="left").tolist(), len(counts.logits_U)]
    sends = np.diff(cuts).tolist()
    receives = [row[ranks.rank] for row in ranks.all_gather(sends)]
    logits = ranks.all_to_all(torch.from_numpy(counts.logits_U), sends, receives).numpy()
    positive = ranks.all_to_all(torch.from_numpy(counts.positive_U), sends, receives).numpy()
    negative = ranks.all_to_all(torch.from_numpy(counts.negative_U), sends, receives).numpy()
    return ScoreCounts.merge([ScoreCounts(logits, positive, negative)])


def _range_bounds(logits_U: np.ndarray, ranks: Ranks) -> np.ndarray:
    num_samples = min(_SAMPLES_PER_RANK, len(logits_U))
    places_S = np.linspace(0, len(logits_U) - 1, num_samples).astype(np.int64)
    gathered = ranks.all_gather([float(v) for v in logits_U[places_S]])
    samples = np.sort(np.array([v for part in gathered for v in part], np.float32))
    if not len(samples):
        return np.zeros(ranks.world_size - 1, np.float32)
    return samples[np.linspace(0, len(samples), ranks.world_size + 1).astype(np.int64)[1:-1]]
