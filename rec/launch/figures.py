"""Figures of training and evaluation as the run records keep them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rec.core.errors import TrainingError
from rec.core.tables import Days, Evaluation, FeatureTable
from rec.datasets.criteo_like import CriteoLikeDataset
from rec.etl.files import rows_of_files
from rec.launch.config import LaunchConfig
from rec.launch.evaluate import evaluate
from rec.train.baseline import logistic_regression
from rec.train.bootstrap import auc_interval
from rec.train.checkpoint import Checkpoint, whole_log
from rec.train.curves import calibration_bins, read_scores, roc_points
from rec.train.metrics import ScoreCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of 100,000 test rows a resample takes some milliseconds.
NUM_RESAMPLES = 200
# The best possible scores of rows by their keys, where the data set knows them.
PlantedScores = Callable[[np.ndarray], np.ndarray]


def planted_scores(folder: Path, table: FeatureTable) -> PlantedScores:
    """Return the best possible scores of a generated data set's rows, by their keys in a table made of it."""
    dataset = CriteoLikeDataset.open(folder)
    day_of = {str(dataset.path(ledger.day).absolute()): ledger.day for ledger in dataset.days}

    def scores(row_key_B: np.ndarray) -> np.ndarray:
        planted_B = np.empty(len(row_key_B), np.float32)
        for path, positions, lines in rows_of_files(Path(table.uri).parent, row_key_B):
            planted_B[positions] = dataset.planted(day_of[path])["probability"][lines - 1]
        return planted_B

    return scores


def training_figures(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return loss curve, epochs, speed, sharding plan and sizes of a finished training, of which the checkpoint is the
    best: epochs after it are told as well, and whether they ended the training."""
    log, config = whole_log(checkpoint), checkpoint.config
    best = log.best_epoch(config.metric)
    return {
        "loss_curve": [[point.step, point.loss] for point in log.losses],
        "epochs": [
            {
                "epoch": epoch.epoch,
                "train_loss": epoch.loss,
                "valid": epoch.evaluation.model_dump() if epoch.evaluation else None,
            }
            for epoch in log.epochs
        ],
        "best_epoch": best.epoch if best else len(log.epochs),
        "metric": config.metric,
        "max_epochs": config.max_epochs,
        "patience": config.patience,
        "stopped_early": log.has_stopped_early(config),
        "num_steps": log.step,
        "rows_per_second": log.rows_per_second(config.global_batch_size),
        "num_parameters": _num_parameters(checkpoint),
        "world_size": checkpoint.world_size,
        "plan": [
            {
                "table": p.table.name,
                "num_embeddings": p.table.num_embeddings,
                "sharding": p.sharding,
                "ranks": list(p.ranks),
                "megabytes": p.estimated_bytes / 1e6,
            }
            for p in checkpoint.plan.placements
        ],
    }


def _num_parameters(checkpoint: Checkpoint) -> int:
    """Return how many numbers the embedding tables hold."""
    return sum(p.table.num_embeddings * p.table.embedding_dim for p in checkpoint.plan.placements)


def evaluation_figures(
    spark: "SparkSession",
    checkpoint: Checkpoint,
    days: Days,
    scores_folder: Path,
    planted: PlantedScores | None,
    launch: LaunchConfig,
) -> tuple[dict[str, Any], Evaluation]:
    """Return figures of the test days beside the baselines' on the same rows, and the test evaluation.

    The figures of the valid days are those that training chose by. Raises TrainingError where no day is to be judged.
    """
    judged = days.test
    if not judged:
        raise TrainingError("days.test is empty; name the days to evaluate on")
    figures: dict[str, Any] = {}
    best = checkpoint.log.best_epoch(checkpoint.config.metric)
    if best and best.evaluation:
        figures["valid"] = best.evaluation.model_dump()
    test = evaluate(checkpoint, checkpoint.table, judged, spark=spark, scores_folder=scores_folder, launch=launch)
    scores = read_scores(scores_folder)
    label_B, logit_B = scores["label"], scores["logit"]
    baselines: dict[str, Any] = {}
    if days.valid:
        fit = logistic_regression(checkpoint.table, days, checkpoint.config)
        baselines["logistic_regression"] = {"auc": fit.test.auc, "interval": _bounds(fit.logit_B, fit.label_B)}
    if planted:
        best_B = planted(scores["row_key"])
        baselines["planted"] = {"auc": ScoreCounts.of(best_B, label_B).totals().evaluation(judged).auc}
    first, *_ = checkpoint.log.epochs
    figures |= {
        "num_train_rows": first.step * checkpoint.config.global_batch_size,
        "num_parameters": _num_parameters(checkpoint),
        "test": test.model_dump(),
        "interval": _bounds(logit_B, label_B),
        "roc": roc_points(label_B, logit_B),
        "calibration": calibration_bins(label_B, logit_B),
        "baselines": baselines,
    }
    return figures, test


def _bounds(logit_B: np.ndarray, label_B: np.ndarray) -> list[float]:
    interval = auc_interval(logit_B, label_B, num_resamples=NUM_RESAMPLES)
    return [interval.low, interval.high]
