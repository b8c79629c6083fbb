"""Score days of a feature table with a checkpoint, by ranks in Spark executors."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.tables import Evaluation, FeatureTable
from rec.etl.session import spark_session
from rec.launch.config import LaunchConfig
from rec.launch.inputs import check_input
from rec.launch.programs import evaluate_program
from rec.launch.progress import ProgressDisplay
from rec.launch.spark import run_ranks
from rec.launch.train import located
from rec.train.checkpoint import Checkpoint
from rec.train.records import EvaluationJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def evaluate(
    checkpoint: Checkpoint,
    table: FeatureTable,
    days: Iterable[int],
    *,
    spark: "SparkSession | None" = None,
    num_proc: int | None = None,
    scores_folder: str | Path | None = None,
    launch: LaunchConfig | None = None,
) -> Evaluation:
    """Return exact figures over every labelled row of the days.

    ``num_proc`` is the checkpoint's unless given; figures depend on it by float rounding of logits alone.
    ``scores_folder`` (seen by every rank) gets row keys, labels and logits as ``scores_RANK.npz``.
    """
    num_proc = num_proc or checkpoint.config.num_proc
    job = EvaluationJob(
        checkpoint=checkpoint.path,
        table=located(table),
        days=tuple(days),
        scores_folder=str(Path(scores_folder).absolute()) if scores_folder else None,
    )
    check_input(job.table, checkpoint.config, num_proc, {"test": job.days})
    with ProgressDisplay() as display:
        evaluation, *_ = run_ranks(
            spark or spark_session(), evaluate_program, [job], num_proc=num_proc, config=launch, on_beat=display
        )
    return evaluation
