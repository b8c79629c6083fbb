"""Scoring every labelled row of some days."""

from pathlib import Path
from typing import Any

import numpy as np

from rec.core.errors import CheckpointError
from rec.core.tables import Evaluation, Ranks
from rec.data.loader import Loader, make_loader
from rec.train.checkpoint import BlockReader, load_dense, open_checkpoint
from rec.train.learner import Learner
from rec.train.metrics import ScoreCounts
from rec.train.progress import Speed, seconds_allowed
from rec.train.records import EvaluationJob, Report
from rec.train.scoring import evaluate_scores

# Counting in pieces bounds memory by the distinct logits and not by the rows.
_ROWS_PER_COUNT = 1 << 20


class RowScores:
    """One rank's (row key, label, logit) of real rows, gathered for a file."""

    def __init__(self, folder: str):
        self._folder = Path(folder)
        self._parts: list[tuple[np.ndarray, ...]] = []

    def add(self, row_keys: np.ndarray, labels: np.ndarray, logits: np.ndarray) -> None:
        self._parts.append((row_keys, labels, logits))

    def write(self, rank: int) -> None:
        """Write ``scores_RANK.npz`` with ``row_key`` int64, ``label`` and ``logit`` float32."""
        self._folder.mkdir(parents=True, exist_ok=True)
        row_key, label, logit = (np.concatenate(column) for column in zip(*self._parts))
        np.savez(self._folder / f"scores_{rank:05d}.npz", row_key=row_key, label=label, logit=logit)


def evaluate_rows(
    learner: Learner, loader: Loader, days: tuple[int, ...], report: Report, scores: RowScores | None = None
) -> Evaluation:
    """Return exact figures over the rows of all ranks, the same on every rank. Padded rows do not count."""
    counted: list[ScoreCounts] = []
    pending: list[tuple[np.ndarray, np.ndarray]] = []
    num_steps, rows = loader.steps_per_epoch, 0
    speed = Speed(learner.config.global_batch_size, num_steps, 0)
    for step, batch in enumerate(loader, 1):
        real_B = (batch.weight_B > 0).numpy()
        logits, labels = learner.score(batch).numpy()[real_B], batch.label_B.numpy()[real_B]
        pending.append((logits, labels))
        if scores is not None:
            assert batch.row_key_B is not None
            scores.add(batch.row_key_B.numpy()[real_B], labels, logits)
        rows += len(real_B)
        if rows >= _ROWS_PER_COUNT or step == num_steps:
            counted = [ScoreCounts.merge([*counted, ScoreCounts.of(*map(np.concatenate, zip(*pending)))])]
            pending, rows = [], 0
        report(phase="evaluate", step=step, **speed.figures())
    evaluation = evaluate_scores(ScoreCounts.merge(counted), days, learner.ranks)
    # After the figures: days of one label have none, and leave no file.
    if scores is not None:
        scores.write(learner.ranks.rank)
    return evaluation


def evaluate_checkpoint(ranks: Ranks, job: EvaluationJob, report: Report | None = None) -> Evaluation:
    """Load a checkpoint onto these ranks, whatever their number, and score days of a table encoded by its state."""
    report = report or no_report
    checkpoint = open_checkpoint(job.checkpoint)
    if job.table.state_id != checkpoint.table.state_id:
        raise CheckpointError(
            f"{job.checkpoint}: trained on state {checkpoint.table.state_id}, table {job.table.uri} version "
            f"{job.table.version} is encoded by {job.table.state_id}; evaluate on a table of the same state"
        )
    report(phase="load", limit_s=seconds_allowed(checkpoint.num_bytes))
    learner = Learner(checkpoint.model, checkpoint.config, checkpoint.table.schema, ranks)
    checkpoint.verify()
    learner.embeddings.load(BlockReader(checkpoint))
    learner.load_dense_state(load_dense(checkpoint))
    loader = evaluation_loader(job.table, job.days, learner)
    scores = RowScores(job.scores_folder) if job.scores_folder else None
    return evaluate_rows(learner, loader, job.days, report, scores)


def evaluation_loader(table: Any, days: tuple[int, ...], learner: Learner) -> Loader:
    """Open days for scoring in table order with the batch size of training."""
    ranks = learner.ranks
    return make_loader(
        table, days, rank=ranks.rank, world_size=ranks.world_size, config=learner.config, evaluation=True
    )


def no_report(
    *, phase: str, step: int | None = None, limit_s: float | None = None, **figures: float | int | str
) -> None:
    """Hear nothing."""
