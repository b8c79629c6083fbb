"""A recipe and its stages: each reads what the stage before it left, and writes one record."""

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from rec.core.config import Config, load_config
from rec.core.errors import ConfigError
from rec.core.manifest import sha256_file
from rec.core.records import Artifact, Run, StageRecord, Stopwatch, named_inputs, newest_record
from rec.core.tables import Days, FeatureTable
from rec.datasets.criteo_like import CriteoLikeConfig, prepare_rows
from rec.etl.config import RootPath, SourceConfig
from rec.launch.config import LaunchConfig
from rec.launch.confs import default_conf
from rec.launch.interrupt import own_handling
from rec.model.config import ModelConfig
from rec.ops.config import FeaturesConfig
from rec.serve.config import ServeConfig
from rec.train.config import TrainConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from rec.core.tables import Evaluation
    from rec.etl.build import BuiltFeatures
    from rec.etl.receipt import Receipt
    from rec.etl.source import Source
    from rec.train.checkpoint import Checkpoint

log = logging.getLogger(__name__)

DEFAULT_SPARK_CONF, CLUSTER_SPARK_CONF = "local.conf", "cluster-gpu.conf"


class Recipe(Config):
    """The stage configs, composed. ``dataset`` asks for generated rows where ``source.path`` has none yet."""

    name: str
    root: RootPath
    dataset: CriteoLikeConfig | None = None
    source: SourceConfig
    days: Days
    features: FeaturesConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    launch: LaunchConfig = LaunchConfig()
    serve: ServeConfig = ServeConfig()

    @field_validator("features")
    @classmethod
    def _some_chain(cls, features: FeaturesConfig) -> FeaturesConfig:
        if not features.root:
            raise ConfigError("no chain of operators; name one, such as dense: {columns: I*, ops: [fill_missing, log]}")
        return features

    @property
    def placed_source(self) -> SourceConfig:
        """The source with a work folder: below the root, which every executor reaches, where none is named."""
        return self.source.model_copy(update={"work_dir": self.source.work_dir or f"{self.root}/work"})

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

    def source(self) -> "Source":
        from rec.etl.source import read_source

        return read_source(self.spark, self.recipe.placed_source)

    def record(
        self,
        stage: str,
        watch: Stopwatch,
        artifacts: tuple[dict[str, Artifact], dict[str, Artifact]],
        figures: dict[str, Any],
        warnings: tuple[str, ...] = (),
    ) -> None:
        """Write a stage's record; ``artifacts`` are what it read and what it wrote."""
        from rec.report.text import duration

        inputs, outputs = artifacts
        record = StageRecord(
            run_id=self.run.run_id,
            stage=stage,
            config=self.recipe.model_dump(mode="json"),
            inputs=inputs,
            outputs=outputs,
            figures=figures,
            warnings=warnings,
            started_utc=watch.started_utc,
            seconds=watch.seconds,
        )
        self.run.write(record)
        log.info("%s: done in %s", stage, duration(record.seconds))


def load_recipe(path: str | Path, settings: list[str] | None = None) -> Recipe:
    return load_config(Recipe, path, settings)


def open_stages(recipe: Recipe, spark_conf: str | Path | None = None, extra: dict[str, str] | None = None) -> Stages:
    """Start a run: a folder for its records and a Spark session; spark-submit's own session where there is one."""
    from rich.console import Console

    from rec.etl.session import is_submitted, spark_session

    conf = spark_conf or (None if extra or is_submitted() else default_conf(DEFAULT_SPARK_CONF))
    with own_handling():
        spark = spark_session(conf, extra)
    return Stages(recipe, Run(recipe.root), spark, Console().print)


def run_all(stages: Stages) -> Path:
    """Run every stage and return the report's path."""
    run_etl(stages)
    run_train(stages)
    run_evaluate(stages)
    run_push(stages)
    return write_run_report(stages)


def run_etl(stages: Stages) -> FeatureTable:
    """Raw rows to a feature table, with a ledger of every line."""
    from rec.etl.receipt import kept_receipt
    from rec.report.tables import ledger_table

    recipe, watch = stages.recipe, Stopwatch()
    if recipe.dataset is not None:
        prepare_rows(recipe.source.path, recipe.dataset)
    built = _build_features(stages, recipe.root, recipe.days.train)
    inputs = named_inputs(Artifact(uri=f.path, sha256=f.sha256) for f in built.source.files)
    figures = {**built.figures(), "gpu_receipt": kept_receipt(recipe.root, recipe.model_dump(mode="json"), inputs)}
    stages.record("etl", watch, (inputs, {"features": _artifact(built.table)}), figures, built.source.ledger.warnings)
    stages.show(ledger_table(figures))
    return built.table


def run_train(stages: Stages) -> "Checkpoint":
    """Feature table to a checkpoint. With ``refit``, the first training chooses the number of epochs for a second."""
    from rec.etl.features import open_features
    from rec.launch.figures import training_figures
    from rec.report.tables import training_line

    recipe, watch = stages.recipe, Stopwatch()
    table = open_features(recipe.root)
    checkpoint = _train(stages, table, recipe.train, recipe.days)
    figures = training_figures(checkpoint)
    if recipe.train.refit:
        days = Days(train=(*recipe.days.train, *recipe.days.valid), test=recipe.days.test)
        table = _build_features(stages, recipe.refit_root, days.train).table
        again = recipe.train.model_copy(update={"max_epochs": figures["best_epoch"], "refit": False})
        checkpoint, choice = _train(stages, table, again, days), figures
        figures = {**training_figures(checkpoint), "choice": choice}
    outputs = {"checkpoint": Artifact(uri=checkpoint.path, sha256=checkpoint.sha256)}
    stages.record("train", watch, ({"features": _artifact(table)}, outputs), figures)
    stages.show(training_line(figures))
    return checkpoint


def run_evaluate(stages: Stages) -> "Evaluation":
    """Exact figures of the newest checkpoint on valid and test days, beside the baselines on the same rows."""
    from rec.launch.figures import evaluation_figures, planted_scores
    from rec.report.tables import evaluation_table

    recipe, watch = stages.recipe, Stopwatch()
    checkpoint = _newest_checkpoint(recipe)
    folder = stages.run.folder / "scores"
    planted = planted_scores(Path(recipe.source.path).parent, checkpoint.table) if recipe.dataset else None
    figures, test = evaluation_figures(stages.spark, checkpoint, recipe.days, folder, planted, recipe.launch)
    inputs = {
        "checkpoint": Artifact(uri=checkpoint.path, sha256=checkpoint.sha256),
        "features": _artifact(checkpoint.table),
    }
    stages.record("evaluate", watch, (inputs, {"scores": Artifact(uri=str(folder.absolute()))}), figures)
    stages.show(evaluation_table(figures))
    return test


def run_push(stages: Stages) -> dict[str, Any]:
    """Checkpoint to a verified bundle, served as a new version, its scores compared with the table's rows."""
    from rec.launch.export import export
    from rec.launch.parity import ParityInput, measure_latency, measure_parity
    from rec.ops.pipeline import FittedPipeline
    from rec.report.tables import push_table
    from rec.serve.push import push
    from rec.train.curves import require_scores

    recipe, watch = stages.recipe, Stopwatch()
    checkpoint = _newest_checkpoint(recipe)
    table, trained = checkpoint.table, Artifact(uri=checkpoint.path, sha256=checkpoint.sha256)
    # Before anything is served: the scores that the served ones must equal.
    evaluated = newest_record(recipe.root, "evaluate", on=trained)
    scores = Path(evaluated.outputs["scores"].uri)
    require_scores(scores)
    days = tuple(evaluated.figures["test"]["days"])
    bundle = export(checkpoint, FittedPipeline.load(Path(table.uri).parent / "states" / table.state_id))
    source = stages.source()
    served = push(bundle, config=recipe.serve)
    try:
        given = ParityInput(source=source, table=table, days=days, scores_folder=scores, run_id=stages.run.run_id)
        figures = {
            "model": served.model_name,
            "version": served.version,
            "goldens": bundle.goldens().num_rows,
            "parity": measure_parity(served, bundle, given),
            **measure_latency(served, bundle, source),
        }
    finally:
        served.stop()
    inputs = {"checkpoint": trained, "features": _artifact(table)}
    outputs = {
        "bundle": Artifact(uri=str(bundle.path), sha256=bundle.bundle_id),
        "served": Artifact(uri=f"{served.repository}/{served.model_name}", version=served.version),
    }
    stages.record("push", watch, (inputs, outputs), figures)
    stages.show(push_table(figures))
    return figures


def write_run_report(stages: Stages) -> Path:
    """Write the run's report and return its path."""
    from rec.report.html import write_report

    return write_report(stages.run.folder, Path(stages.recipe.root) / "reports" / f"{stages.run.run_id}.html")


def explain_etl(recipe: Recipe, cluster_conf: str | Path | None = None, *, broadcasts: bool = True) -> "Receipt":
    """Run the features stage on the CPU into a folder that is thrown away, and say what of it a GPU would run.

    The receipt is kept as a record of the recipe's own root, where the next features stage finds it.
    """
    from rec.etl.receipt import CONF, captured_stderr, explain_conf, make_receipt

    cluster_conf = cluster_conf or default_conf(CLUSTER_SPARK_CONF)
    watch, settings = Stopwatch(), explain_conf(cluster_conf, broadcasts=broadcasts)
    with tempfile.TemporaryDirectory(prefix="reclake-explain-") as folder, captured_stderr() as log_file:
        # A work folder of its own too: lines that were parsed before would not be read again.
        source = recipe.source.model_copy(update={"work_dir": None})
        stages = open_stages(recipe.model_copy(update={"root": folder, "source": source}), extra=settings)
        run_etl(stages)
        receipt, read = make_receipt(stages.spark, log_file), newest_record(folder, "etl").inputs
    kept = replace(stages, recipe=recipe, run=Run(recipe.root))
    inputs = {**read, CONF: Artifact(uri=str(cluster_conf), sha256=sha256_file(cluster_conf))}
    kept.record("explain", watch, (inputs, {}), {**receipt.figures(), "broadcasts": broadcasts})
    return receipt


def _build_features(stages: Stages, root: str | Path, days: tuple[int, ...]) -> "BuiltFeatures":
    from rec.etl.build import build_features
    from rec.ops.config import build_pipeline

    source = stages.source()
    source.check()
    source.check_days(stages.recipe.days)
    pipeline = build_pipeline(stages.recipe.features, source.schema)
    return build_features(source, pipeline, root, days, stages.run.run_id)


def _train(stages: Stages, table: FeatureTable, config: TrainConfig, days: Days) -> "Checkpoint":
    from rec.launch.train import train_model

    out = Path(table.uri).parent / "checkpoints" / stages.run.run_id
    recipe = stages.recipe
    return train_model(table, recipe.model, config, days, spark=stages.spark, out=out, launch=recipe.launch)


def _newest_checkpoint(recipe: Recipe) -> "Checkpoint":
    from rec.train.checkpoint import open_checkpoint

    return open_checkpoint(newest_record(recipe.root, "train").outputs["checkpoint"].uri)


def _artifact(table: FeatureTable) -> Artifact:
    return Artifact(uri=table.uri, version=table.version)
