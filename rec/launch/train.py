"""Train a model on days of a feature table, by ranks in Spark executors."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.config import local_path
from rec.core.errors import ConfigError
from rec.core.pins import write_pin
from rec.core.tables import Days, FeatureTable
from rec.etl.session import spark_session
from rec.launch.config import LaunchConfig
from rec.launch.inputs import check_input
from rec.launch.programs import train_program
from rec.launch.progress import ProgressDisplay
from rec.launch.spark import run_ranks
from rec.model.config import ModelConfig
from rec.train.checkpoint import Checkpoint
from rec.train.config import TrainConfig
from rec.train.records import TrainingJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def train_model(
    table: FeatureTable,
    model_config: ModelConfig,
    config: TrainConfig,
    days: Days,
    *,
    spark: "SparkSession | None" = None,
    out: str | Path | None = None,
    launch: LaunchConfig | None = None,
) -> Checkpoint:
    """Train on ``config.num_proc`` ranks and return the checkpoint that is best on the valid days.

    ``out`` is a folder that every rank sees. One with checkpoints of the same training is gone on from; unset, a new
    folder below the table's root is taken. The checkpoint pins the table's version under that root.
    """
    root = table_root(table)
    folder = Path(local_path(out)) if out else _new_folder(table, root)
    job = TrainingJob(table=located(table), days=days, model=model_config, config=config, folder=str(folder.absolute()))
    check_input(job.table, config, config.num_proc, {"train": days.train, "valid": days.valid})
    with ProgressDisplay() as display:
        checkpoint, *_ = run_ranks(
            spark or spark_session(),
            train_program,
            [job],
            num_proc=config.num_proc,
            config=launch,
            on_beat=display,
        )
    if root:
        write_pin(root, f"checkpoint_{checkpoint.sha256[:16]}", job.table, checkpoint.path)
    return checkpoint


def table_root(table: FeatureTable) -> Path | None:
    """Return the folder that holds the table and what belongs to it; None where it is no local path."""
    return None if "://" in table.uri else Path(table.uri).absolute().parent


def located(table: FeatureTable) -> FeatureTable:
    """Return the table with a path that is the same in every working directory."""
    return table if "://" in table.uri else replace(table, uri=str(Path(table.uri).absolute()))


def _new_folder(table: FeatureTable, root: Path | None) -> Path:
    if root is None:
        raise ConfigError(f"out is not set and {table.uri} is no local folder; name one that every rank can write to")
    return root / "checkpoints" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
