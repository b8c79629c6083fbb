"""Bootstrap intervals of an AUC."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rec.core.errors import TrainingError
from rec.train.bootstrap import auc_interval


def scores(num_rows: int, *, seed: int, shift: float = 1.0, digits: int = 6) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, num_rows)
    return np.round(generator.normal(shift * labels), digits), labels


@pytest.mark.parametrize("digits", [6, 0])
def test_the_auc_is_exact_with_and_without_ties(digits):
    logits, labels = scores(500, seed=1, digits=digits)
    assert auc_interval(logits, labels, num_resamples=10).auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)


def test_resampled_aucs_are_those_of_the_resampled_rows():
    logits, labels = scores(40, seed=2, digits=1)
    generator, aucs = np.random.default_rng(7), []
    while len(aucs) < 50:
        rows = generator.integers(0, len(labels), len(labels))
        if 0 < labels[rows].sum() < len(rows):
            aucs.append(roc_auc_score(labels[rows], logits[rows]))
    interval = auc_interval(logits, labels, num_resamples=50, level=0.9, seed=7)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(aucs, [0.05, 0.95])), abs=1e-12)


def test_the_interval_holds_the_true_auc_about_as_often_as_it_says():
    big = scores(400_000, seed=3)
    truth = roc_auc_score(big[1], big[0])
    intervals = [auc_interval(*scores(300, seed=100 + k), num_resamples=200, seed=k) for k in range(100)]
    held = sum(i.low <= truth <= i.high for i in intervals)
    assert 85 <= held <= 100


def test_one_seed_gives_one_interval_and_another_seed_another():
    logits, labels = scores(200, seed=4)
    first, same, other = (auc_interval(logits, labels, num_resamples=50, seed=s) for s in (1, 1, 2))
    assert first == same
    assert (first.low, first.high) != (other.low, other.high)


def test_several_models_share_the_resampled_rows():
    logits, labels = scores(200, seed=5)
    alone = auc_interval(logits, labels, num_resamples=50)
    assert auc_interval([logits, 3 * logits], labels, num_resamples=50) == alone


def test_a_single_class_is_refused():
    with pytest.raises(TrainingError, match="0 of 3 labels are 1"):
        auc_interval(np.zeros(3), np.zeros(3, np.int64))
