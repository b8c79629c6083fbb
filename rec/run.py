"""A recipe and its stages: each reads what the stage before it left, and writes one record."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.config import Config, load_config
from rec.core.records import Artifact, Run, StageRecord, Stopwatch, newest_record
from rec.core.tables import Days, FeatureTable
from rec.datasets.config import CriteoLikeConfig
from rec.etl.config import SourceConfig
from rec.model.config import ModelConfig
from rec.ops.config import FeaturesConfig
from rec.serve.config import ServeConfig
from rec.train.config import TrainConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from rec.core.tables import Evaluation
    from rec.etl.source import Source
    from rec.ops.pipeline import FittedPipeline
    from rec.serve.push import ServedVersion
    from rec.train.checkpoint import Checkpoint

DEFAULT_SPARK_CONF = Path("conf/spark/local.conf")


class Recipe(Config):
    """The stage configs, composed. ``dataset`` asks for generated rows where ``source.path`` has none yet."""

    name: str
    root: str
    dataset: CriteoLikeConfig | None = None
    source: SourceConfig
    days: Days
    features: FeaturesConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    serve: ServeConfig = ServeConfig()

    @property
    def refit_root(self) -> Path:
        """Features of the second fit, on train and valid days together."""
        return Path(self.root) / "refit"


@dataclass(frozen=True)
class Stages:
    """One run of a recipe: its records, its session and where its tables are shown."""

    recipe: Recipe
    run: Run
    spark: "SparkSession"
    show: Callable[["RenderableType"], None]


def load_recipe(path: str | Path, settings: list[str] | None = None) -> Recipe:
    return load_config(Recipe, path, settings)


def open_stages(recipe: Recipe, spark_conf: str | Path | None = None, extra: dict[str, str] | None = None) -> Stages:
    """Start a run: a folder for its records and a Spark session; spark-submit's own session where there is one."""
    from rich.console import Console

    from rec.etl.session import spark_session

    conf = spark_conf or (DEFAULT_SPARK_CONF if DEFAULT_SPARK_CONF.exists() and not extra else None)
    return Stages(recipe, Run(recipe.root), spark_session(conf, extra), Console().print)


def run_all(stages: Stages) -> Path:
    """Run every stage and return the report's path."""
    run_etl(stages)
    run_train(stages)
    run_evaluate(stages)
    run_push(stages)
    return write_run_report(stages)


def run_etl(stages: Stages) -> FeatureTable:
    """Raw rows to a feature table, with a ledger of every line."""
    from rec.report.tables import ledger_table

    recipe, watch = stages.recipe, Stopwatch()
    table, figures, source = _features(stages, recipe.root, recipe.days.train)
    outputs = {"features": _table_artifact(table)}
    inputs = {Path(f.path).name: Artifact(uri=f.path, sha256=f.sha256) for f in source.files}
    _record(stages, "etl", watch, inputs, outputs, figures, source.ledger.warnings)
    stages.show(ledger_table(figures))
    return table


def run_train(stages: Stages) -> "Checkpoint":
    """Feature table to a checkpoint. With ``refit``, the first training chooses the number of epochs for a second."""
    from rec.etl.sink import open_features
    from rec.launch.figures import training_figures

    recipe, watch = stages.recipe, Stopwatch()
    table = open_features(recipe.root)
    checkpoint = _train(stages, table, recipe.train, recipe.days)
    figures = training_figures(checkpoint)
    if recipe.train.refit:
        days = Days(train=(*recipe.days.train, *recipe.days.valid), test=recipe.days.test)
        table, _, _ = _features(stages, recipe.refit_root, days.train)
        again = recipe.train.model_copy(update={"max_epochs": figures["best_epoch"], "refit": False})
        choice, checkpoint = figures, _train(stages, table, again, days)
        figures = {**training_figures(checkpoint), "choice": choice}
    inputs = {"features": _table_artifact(table)}
    outputs = {"checkpoint": Artifact(uri=checkpoint.path, sha256=checkpoint.sha256)}
    _record(stages, "train", watch, inputs, outputs, figures)
    return checkpoint


def run_evaluate(stages: Stages) -> "Evaluation":
    """Exact figures of the newest checkpoint on valid and test days, beside the baselines on the same rows."""
    from rec.launch.figures import evaluation_figures
    from rec.report.tables import evaluation_table

    recipe, watch = stages.recipe, Stopwatch()
    checkpoint = _newest_checkpoint(recipe)
    scores = stages.run.folder / "scores"
    figures, test = evaluation_figures(stages.spark, checkpoint, scores, _planted(recipe))
    inputs = {
        "checkpoint": Artifact(uri=checkpoint.path, sha256=checkpoint.sha256),
        "features": _table_artifact(checkpoint.table),
    }
    _record(stages, "evaluate", watch, inputs, {"scores": Artifact(uri=str(scores))}, figures)
    stages.show(evaluation_table(figures))
    return test


def run_push(stages: Stages) -> "ServedVersion":
    """Checkpoint to a verified bundle, served as a new version, its scores compared with the table's rows."""
    from rec.report.tables import push_table
    from rec.serve.push import push
    from rec.train.export import export

    recipe, watch = stages.recipe, Stopwatch()
    checkpoint = _newest_checkpoint(recipe)
    bundle = export(checkpoint, _fitted(checkpoint.table), Path(recipe.root) / "bundles" / stages.run.run_id)
    served = push(bundle, config=recipe.serve)
    try:
        figures = _served_figures(stages, served, checkpoint)
    finally:
        served.stop()
    inputs = {"checkpoint": Artifact(uri=checkpoint.path, sha256=checkpoint.sha256)}
    outputs = {
        "bundle": Artifact(uri=str(bundle.path), sha256=bundle.bundle_id),
        "served": Artifact(uri=f"{served.repository}/{served.model_name}", version=served.version),
    }
    _record(stages, "push", watch, inputs, outputs, figures)
    stages.show(push_table(figures))
    return served


def write_run_report(stages: Stages) -> Path:
    """Write the run's report and return its path."""
    from rec.report.html import write_report

    return write_report(stages.run.folder, Path(stages.recipe.root) / "reports" / f"{stages.run.run_id}.html")
