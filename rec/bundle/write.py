"""Writing a bundle folder: whole or not at all, its manifest last."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rec.bundle.bundle import Bundle
from rec.bundle.goldens import Goldens, check_coverage, save_goldens
from rec.bundle.layout import (
    GOLDENS,
    MANIFEST,
    MODEL,
    PIPELINE,
    SCHEMA,
    TABLES,
    BundleManifest,
    BundleSchema,
    TableEntry,
)
from rec.bundle.verify import open_bundle
from rec.core.errors import BundleError
from rec.core.manifest import aside, digest_folder, write_atomic
from rec.core.records import Artifact
from rec.ops.pipeline import FittedPipeline


@dataclass(frozen=True, kw_only=True)
class BundleContents:
    """Everything a bundle is made of. ``features`` names the sparse features that read each table."""

    model_onnx: bytes
    opset: int
    tables: dict[str, np.ndarray]
    features: dict[str, tuple[str, ...]]
    schema: BundleSchema
    fitted: FittedPipeline
    goldens: Goldens
    checkpoint: Artifact
    feature_table: Artifact


def write_bundle(out: str | Path, contents: BundleContents) -> Bundle:
    """Write a bundle folder and open it. Raises BundleError where ``out`` exists, the goldens leave out an edge, or
    what was written does not hold; then ``out`` is not there."""
    out = Path(out)
    if out.exists():
        raise BundleError(
            f"bundle {out}: it exists and a bundle is never rewritten; remove it or choose another folder"
        )
    check_coverage(contents.goldens, contents.schema.raw, contents.schema.encoded)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = aside(out)
    try:
        _write_files(temporary, contents)
        open_bundle(temporary)
        os.rename(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Bundle(out)


def sign(folder: str | Path, manifest: BundleManifest) -> None:
    """Write the manifest with the digests of the files that are there now."""
    files = digest_folder(folder, skip=frozenset({MANIFEST}))
    write_atomic(Path(folder) / MANIFEST, manifest.model_copy(update={"files": files}).model_dump_json(indent=1))


def _write_files(folder: Path, contents: BundleContents) -> None:
    (folder / TABLES).mkdir(parents=True)
    entries = []
    for number, (name, table) in enumerate(contents.tables.items()):
        file = f"{TABLES}/{number:04d}.npy"
        np.save(folder / file, np.asarray(table, np.float32), allow_pickle=False)
        num_embeddings, embedding_dim = table.shape
        entries.append(
            TableEntry(
                name=name,
                file=file,
                num_embeddings=num_embeddings,
                embedding_dim=embedding_dim,
                features=contents.features[name],
            )
        )
    (folder / MODEL).write_bytes(contents.model_onnx)
    (folder / SCHEMA).write_text(contents.schema.model_dump_json(indent=1), encoding="utf-8")
    contents.fitted.save(folder / PIPELINE)
    save_goldens(contents.goldens, folder / GOLDENS)
    manifest = BundleManifest(
        state_id=contents.fitted.state_id,
        opset=contents.opset,
        tables=tuple(entries),
        checkpoint=contents.checkpoint,
        feature_table=contents.feature_table,
        files={},
    )
    sign(folder, manifest)
