"""From a checkpoint to a bundle, whatever the size of its vocabularies."""

from pathlib import Path

from rec.bundle.bundle import Bundle
from rec.etl.vocabulary import with_all_arrays
from rec.ops.pipeline import FittedPipeline
from rec.train.checkpoint import Checkpoint
from rec.train.export import export as export_arrays


def export(checkpoint: Checkpoint | str | Path, fitted: FittedPipeline, out: str | Path | None = None) -> Bundle:
    """As rec.train.export; values of columns too large to broadcast are read from the vocabulary's table first."""
    return export_arrays(checkpoint, with_all_arrays(fitted), out)
