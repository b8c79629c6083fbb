"""Curves of scored rows."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from rec.core.errors import CheckpointError
from rec.train.curves import calibration_bins, read_scores, roc_points


def scored(seed=0, num_rows=5000):
    rng = np.random.default_rng(seed)
    logit = np.round(rng.standard_normal(num_rows), 1).astype(np.float32)
    label = (rng.random(num_rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return label, logit


def test_the_area_under_the_points_is_the_auc():
    label, logit = scored()
    points = np.array(roc_points(label, logit))
    assert points[0].tolist() == [0, 0]
    assert points[-1].tolist() == [1, 1]
    area = np.trapezoid(points[:, 1], points[:, 0])
    assert area == pytest.approx(roc_auc_score(label, logit), abs=1e-9)


def test_calibration_counts_every_row_and_follows_a_calibrated_score():
    label, logit = scored()
    bins = calibration_bins(label, logit)
    assert sum(rows for *_, rows in bins) == len(label)
    assert max(abs(predicted - observed) for predicted, observed, _ in bins) < 0.12


def test_scores_of_all_ranks_come_by_row_key(tmp_path):
    for rank, keys in enumerate([[5, 1], [4, 2]]):
        values = np.array(keys, np.float32)
        np.savez(tmp_path / f"scores_{rank:05d}.npz", row_key=np.array(keys), label=values * 0, logit=values)
    scores = read_scores(tmp_path)
    assert scores["row_key"].tolist() == scores["logit"].tolist() == [1, 2, 4, 5]
    with pytest.raises(CheckpointError, match="no scores"):
        read_scores(tmp_path / "none")
