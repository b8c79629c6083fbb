"""Curves of scored rows, for the eye: the exact figures are in ``metrics``."""

from pathlib import Path

import numpy as np

from rec.core.errors import CheckpointError

NUM_ROC_POINTS = 200
NUM_CALIBRATION_BINS = 20


def require_scores(folder: str | Path) -> list[Path]:
    """Return the files that an evaluation wrote. Raises CheckpointError where there are none."""
    files = sorted(Path(folder).glob("scores_*.npz"))
    if not files:
        raise CheckpointError(f"{folder}: no scores; evaluate the checkpoint again: rec evaluate RECIPE")
    return files


def read_scores(folder: str | Path) -> dict[str, np.ndarray]:
    """Return ``row_key`` int64, ``label`` and ``logit`` float32 of all ranks, by row key."""
    parts = [dict(np.load(file, allow_pickle=False)) for file in require_scores(folder)]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in ("row_key", "label", "logit")}
    order = np.argsort(scores["row_key"], kind="stable")
    return {name: values[order] for name, values in scores.items()}


def roc_points(label_B: np.ndarray, logit_B: np.ndarray) -> list[tuple[float, float]]:
    """Return (false positive rate, true positive rate) from (0, 0) to (1, 1), at most NUM_ROC_POINTS of them."""
    order = np.argsort(-logit_B, kind="stable")
    last_of_tie = np.r_[np.diff(logit_B[order]) != 0, True]
    positive = np.cumsum(label_B[order] > 0)[last_of_tie]
    negative = np.cumsum(label_B[order] <= 0)[last_of_tie]
    rates = np.column_stack([negative / max(negative[-1], 1), positive / max(positive[-1], 1)])
    kept = np.unique(np.linspace(0, len(rates) - 1, NUM_ROC_POINTS - 1).round().astype(int))
    return [(0.0, 0.0), *((float(f), float(t)) for f, t in rates[kept])]


def calibration_bins(label_B: np.ndarray, logit_B: np.ndarray) -> list[tuple[float, float, int]]:
    """Return (mean predicted, observed rate, rows) of bins with equally many rows, by rising prediction."""
    order = np.argsort(logit_B, kind="stable")
    probability = 1 / (1 + np.exp(-logit_B[order].astype(np.float64)))
    bins = [b for b in np.array_split(np.arange(len(order)), NUM_CALIBRATION_BINS) if len(b)]
    return [(float(probability[b].mean()), float((label_B[order][b] > 0).mean()), len(b)) for b in bins]
