"""From a checkpoint to a bundle: ONNX graph, tables in id order, states, and the trainer's logits of golden rows.

Shapes: N golden rows, D dense features, F sparse features, E embedding_dim.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rec.bundle.bundle import Bundle
from rec.bundle.goldens import Goldens, table_digest
from rec.bundle.layout import BundleSchema
from rec.bundle.verify import open_bundle
from rec.bundle.write import BundleContents, write_bundle
from rec.core.config import local_path
from rec.core.errors import BundleError
from rec.core.pins import write_pin
from rec.core.records import Artifact
from rec.core.schema import FeatureSchema
from rec.embedding.tables import TableSpec
from rec.model.base import Model
from rec.ops.pipeline import FittedPipeline
from rec.train.checkpoint import Checkpoint, load_model, open_checkpoint
from rec.train.golden_table import GoldenRows, read_golden_rows
from rec.train.onnx_export import OPSET, onnx_bytes


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The dense part with its weights, and each table as float32 [num_embeddings, embedding_dim] in id order."""

    model: Model
    weights: dict[str, torch.Tensor]
    checkpoint: Artifact
    feature_table: Artifact


def export(checkpoint: Checkpoint | str | Path, fitted: FittedPipeline, out: str | Path | None = None) -> Bundle:
    """Write the bundle of a checkpoint and pin its table version; without ``out``, below the fitted pipeline's root.

    There the folder is named by what it holds, so exporting the same again opens what is there. Raises BundleError
    where states and checkpoint do not belong together.
    """
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = open_checkpoint(checkpoint)
    schema = bundle_schema(fitted)
    _check_belongs(checkpoint, fitted, schema)
    default = f"{fitted.root}/bundles/{fitted.state_id[:12]}-{checkpoint.sha256[:12]}"
    folder = Path(local_path(out or default))
    if out is None and folder.exists():
        return open_bundle(folder)
    model, weights = load_model(checkpoint)
    trained = TrainedModel(
        model=model,
        weights=weights,
        checkpoint=Artifact(uri=checkpoint.path, sha256=checkpoint.sha256),
        feature_table=Artifact(uri=checkpoint.table.uri, version=checkpoint.table.version),
    )
    bundle = export_model(trained, fitted, read_golden_rows(fitted.root, fitted.state_id, schema), folder)
    write_pin(fitted.root, f"bundle-{bundle.bundle_id[:16]}", checkpoint.table, folder)
    return bundle


def _check_belongs(checkpoint: Checkpoint, fitted: FittedPipeline, schema: BundleSchema) -> None:
    if checkpoint.table.state_id != fitted.state_id:
        raise BundleError(
            f"checkpoint {checkpoint.path}: trained on state {checkpoint.table.state_id[:16]}…, given is "
            f"{fitted.state_id[:16]}…; export with the states it was trained on"
        )
    trained_on = _features(checkpoint.table.schema).names
    if trained_on != schema.encoded.names:
        raise BundleError(
            f"checkpoint {checkpoint.path}: trained on columns {trained_on}, the states make {schema.encoded.names}; "
            "export with the states it was trained on"
        )


def export_model(trained: TrainedModel, fitted: FittedPipeline, rows: GoldenRows, out: str | Path) -> Bundle:
    """Write a bundle, prove it and open it. Raises BundleError where something does not hold."""
    schema = bundle_schema(fitted)
    specs = trained.model.tables(schema.encoded)
    tables = {spec.name: _table(spec, trained.weights) for spec in specs}
    dense_ND = torch.from_numpy(np.ascontiguousarray(rows.dense_ND, np.float32))
    embedded_NFE = _embedded(schema.encoded, specs, trained.weights, torch.from_numpy(rows.ids_NF.astype(np.int64)))
    model = trained.model.cpu().eval()
    with torch.no_grad():
        logits_N = model(dense_ND, embedded_NFE).numpy()
    goldens = Goldens(
        raw=rows.raw,
        dense_ND=rows.dense_ND,
        ids_NF=rows.ids_NF,
        logits_N=logits_N,
        table_sha256={name: table_digest(table) for name, table in tables.items()},
    )
    contents = BundleContents(
        model_onnx=onnx_bytes(model, dense_ND, embedded_NFE),
        opset=OPSET,
        tables=tables,
        features={spec.name: spec.feature_names for spec in specs},
        schema=schema,
        fitted=fitted,
        goldens=goldens,
        checkpoint=trained.checkpoint,
        feature_table=trained.feature_table,
    )
    return write_bundle(out, contents)


def bundle_schema(fitted: FittedPipeline) -> BundleSchema:
    """Return the features of a request and of the model's input. Raises BundleError for one that cannot be served."""
    for chain in fitted.pipeline.chains:
        for op in chain.ops:
            if op.kind == "table":
                raise BundleError(
                    f"columns {', '.join(chain.names[:3])}: {op.name()} needs rows that a request does not have; leave "
                    "these columns out of the model"
                )
    raw = fitted.pipeline.select(fitted.schema)
    lists = [c for c in (*raw.dense, *raw.sparse) if c.dtype.startswith("list")]
    if lists:
        raise BundleError(f"column {lists[0].name!r}: {lists[0].dtype} has no request form; leave it out of the model")
    encoded = fitted.encoded_schema
    return BundleSchema(raw=_features(raw), encoded=_features(encoded))


def _features(schema: FeatureSchema) -> FeatureSchema:
    return FeatureSchema(columns=(*schema.dense, *schema.sparse))


def _table(spec: TableSpec, weights: dict[str, torch.Tensor]) -> np.ndarray:
    weight = weights.get(spec.name)
    expected = [spec.num_embeddings, spec.embedding_dim]
    if weight is None or list(weight.shape) != expected:
        given = "nothing" if weight is None else list(weight.shape)
        raise BundleError(
            f"table {spec.name}: the checkpoint holds {given}, the states need {expected}; export with the states that "
            "the model was trained on"
        )
    return weight.detach().cpu().to(torch.float32).contiguous().numpy()


def _embedded(
    encoded: FeatureSchema, specs: list[TableSpec], weights: dict[str, torch.Tensor], ids_NF: torch.Tensor
) -> torch.Tensor:
    by_feature = {f: weights[s.name].cpu().to(torch.float32) for s in specs for f in s.feature_names}
    rows = [by_feature[c.name][ids_NF[:, position]] for position, c in enumerate(encoded.sparse)]
    return torch.stack(rows, 1)
