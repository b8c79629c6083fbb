"""Reclake: raw click logs to a served recommender. Every public name loads its engine when it is first used."""

from importlib import import_module
from typing import Any

_HOME = {
    "spark_session": "rec.etl.session",
    "read_criteo": "rec.etl.source",
    "read_parquet": "rec.etl.source",
    "Days": "rec.core.tables",
    "FeatureTable": "rec.core.tables",
    "FillMissing": "rec.ops.fill_missing",
    "FillMedian": "rec.ops.fill_median",
    "Clip": "rec.ops.clip",
    "LogOp": "rec.ops.log",
    "Normalize": "rec.ops.normalize",
    "Categorify": "rec.ops.categorify",
    "Pipeline": "rec.ops.pipeline",
    "fit_features": "rec.etl.fit",
    "write_features": "rec.etl.sink",
    "open_features": "rec.etl.features",
    "DLRMConfig": "rec.model.config",
    "TrainConfig": "rec.train.config",
    "LoaderConfig": "rec.data.config",
    "make_loader": "rec.data.loader",
    "train_model": "rec.launch.train",
    "evaluate": "rec.launch.evaluate",
    "export": "rec.launch.export",
    "open_bundle": "rec.bundle.verify",
    "push": "rec.serve.push",
    "Recipe": "rec.run",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rec' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
