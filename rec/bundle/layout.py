"""What a bundle folder holds.

manifest.json          sha256 of every other file, tables, opset, state id; written last
schema.json            raw columns (what a request holds) and encoded columns (what the model reads)
model.onnx             (dense_BD float32, embedded_BFE float32) -> logit_B1 float32
tables/0000.npy …      float32 [num_embeddings, embedding_dim], row = id; memory-mapped
pipeline/              states and vocabularies of the fitted pipeline
goldens/               rows whose encoding Spark made and whose logits the trainer made

Shapes: B batch, D dense features, F sparse features, E embedding_dim, N golden rows.
"""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rec.core.errors import BundleError
from rec.core.manifest import FileDigest
from rec.core.records import Artifact
from rec.core.schema import FeatureSchema

MANIFEST = "manifest.json"
SCHEMA = "schema.json"
MODEL = "model.onnx"
TABLES = "tables"
PIPELINE = "pipeline"
GOLDENS = "goldens"

# A score may differ from the trainer's by this much times (1 + |logit|): float32 sums in another order.
LOGIT_TOLERANCE = 1e-5

Record = TypeVar("Record", bound=BaseModel)


class TableEntry(BaseModel):
    """One embedding table: its file, its shape, and the sparse features that read it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    file: str
    num_embeddings: int
    embedding_dim: int
    features: tuple[str, ...]


class BundleManifest(BaseModel):
    """The bundle's contents and where they come from; its own sha256 is the bundle's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: int = 1
    state_id: str
    opset: int
    tables: tuple[TableEntry, ...]
    checkpoint: Artifact
    feature_table: Artifact
    files: dict[str, FileDigest]


class BundleSchema(BaseModel):
    """Columns of a request and columns of the model's input, each in input order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    raw: FeatureSchema
    encoded: FeatureSchema


def read_manifest(path: str | Path) -> BundleManifest:
    """Return the manifest of a bundle folder. Raises BundleError where there is none or it does not parse."""
    file = Path(path) / MANIFEST
    if not file.is_file():
        raise BundleError(f"bundle {path}: no {MANIFEST}; it is incomplete or no bundle: export it again")
    manifest = _parse(BundleManifest, file)
    if manifest.format_version != 1:
        raise BundleError(f"bundle {path}: format {manifest.format_version}, this version reads 1; export it again")
    return manifest


def read_schema(path: str | Path) -> BundleSchema:
    """Return raw and encoded columns of a bundle folder."""
    return _parse(BundleSchema, Path(path) / SCHEMA)


def _parse(cls: type[Record], file: Path) -> Record:
    try:
        return cls.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        cause = " ".join(str(error).split())[:200]
        raise BundleError(f"bundle {file.parent}: {file.name} cannot be read: {cause}; export it again") from None
