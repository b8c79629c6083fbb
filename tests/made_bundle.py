"""Small bundles of random weights over a pipeline fitted by hand: real in every part, ready in a second."""

from pathlib import Path

import numpy as np
import torch

from rec.bundle.bundle import Bundle
from rec.core.ids import MISSING, UNSEEN
from rec.core.records import Artifact
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.model.config import DLRMConfig
from rec.model.registry import build_model
from rec.ops.categorify import Categorify
from rec.ops.clip import Clip
from rec.ops.fill_missing import FillMissing
from rec.ops.log import LogOp
from rec.ops.normalize import Normalize, ScaleState
from rec.ops.op import NoState
from rec.ops.pipeline import FittedPipeline, Pipeline
from rec.ops.vocabulary import ColumnVocabulary, NumberKeys, TextKeys, VocabularyState
from rec.train.export import TrainedModel, bundle_schema, export_model
from rec.train.golden_table import GoldenRows

KINDS = ("hex32", "string", "int64")
INT64 = np.iinfo(np.int64)
NUM_VALUES = 300


def raw_schema(num_dense: int = 3, num_sparse: int = 4) -> FeatureSchema:
    dense = [Column(name=f"I{k + 1}", role="dense", dtype="int64") for k in range(num_dense)]
    kinds = [KINDS[k % len(KINDS)] for k in range(num_sparse)]
    sparse = [
        Column(name=f"C{k + 1}", role="sparse", dtype="int64" if kind == "int64" else "string", key=kind)
        for k, kind in enumerate(kinds)
    ]
    return FeatureSchema(columns=(Column(name="label", role="label", dtype="int32"), *dense, *sparse))


def fit_by_hand(schema: FeatureSchema, num_values: int = NUM_VALUES, scale: float = 200.0) -> FittedPipeline:
    """Return a pipeline whose first dense column is normalized and whose vocabularies hold ``num_values`` values."""
    normalized, logged = schema.dense[:1], schema.dense[1:]
    pipeline = Pipeline(
        normalized >> Normalize(),
        logged >> FillMissing(0) >> Clip(min=0) >> LogOp(),
        schema.sparse >> Categorify(),
    )
    states = (
        (ScaleState({normalized[0].name: (5.0, scale)}),),
        (NoState(), NoState(), NoState()),
        (VocabularyState({c.name: _vocabulary(c, num_values) for c in schema.sparse}),),
    )
    return FittedPipeline(
        root="lake/made", schema=schema, pipeline=pipeline, states=states, days=(0,), state_id=pipeline.state_id(states)
    )


def value_of(column: Column, number: int) -> bytes:
    """Return the raw value that a column's vocabulary holds at a place."""
    return {"hex32": b"%08x", "string": b"value %d", "int64": b"%d"}[column.key or ""] % (7 * number + 1)


def make_rows(schema: FeatureSchema, num_rows: int, seed: int = 0, num_values: int = NUM_VALUES) -> dict[str, Values]:
    """Return raw columns: missing and unseen values, negatives and both ends of int64 among the first rows."""
    rng = np.random.default_rng(seed)
    columns = {}
    for column in schema.dense:
        data_B = rng.integers(-5, 1000, num_rows)
        data_B[:4] = [INT64.min, INT64.max, -1, 0][:num_rows]
        missing_B = rng.random(num_rows) < 0.1
        missing_B[:4], missing_B[4:5] = False, True
        columns[column.name] = Values(np.where(missing_B, 0, data_B), missing_B)
    for column in schema.sparse:
        places = rng.integers(0, num_values + 20, num_rows)
        places[:2] = [0, num_values - 1][:num_rows]
        missing_B = rng.random(num_rows) < 0.1
        missing_B[:2], missing_B[2:3] = False, True
        places[3:4], missing_B[3:4] = num_values + 5, False
        data_B = np.empty(num_rows, object)
        data_B[:] = [b"" if gone else value_of(column, place) for place, gone in zip(places, missing_B)]
        columns[column.name] = Values(data_B, missing_B)
    return columns


def make_bundle(
    out: Path, seed: int = 0, schema: FeatureSchema | None = None, num_values: int = NUM_VALUES, scale: float = 200.0
) -> Bundle:
    """Export a DLRM of random weights."""
    schema = schema or raw_schema()
    fitted = fit_by_hand(schema, num_values, scale)
    encoded = bundle_schema(fitted).encoded
    model = build_model(DLRMConfig(embedding_dim=8), encoded, seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        spec.name: torch.randn(spec.num_embeddings, spec.embedding_dim, generator=generator)
        for spec in model.tables(encoded)
    }
    trained = TrainedModel(
        model=model,
        weights=weights,
        checkpoint=Artifact(uri="lake/made/checkpoints/1"),
        feature_table=Artifact(uri="lake/made/features", version=1),
    )
    return export_model(trained, fitted, golden_rows(fitted, encoded, num_values), out)


def golden_rows(fitted: FittedPipeline, encoded: FeatureSchema, num_values: int = NUM_VALUES) -> GoldenRows:
    raw = make_rows(fitted.schema, 256, num_values=num_values)
    replayed = fitted.replay(raw)
    ids_NF = np.stack([replayed[c.name].data_B for c in encoded.sparse], 1)
    assert {MISSING, UNSEEN} <= set(ids_NF[:, 0])
    return GoldenRows(raw=raw, dense_ND=np.stack([replayed[c.name].data_B for c in encoded.dense], 1), ids_NF=ids_NF)


def _vocabulary(column: Column, num_values: int) -> ColumnVocabulary:
    values = [value_of(column, place) for place in range(num_values)]
    ids_V = np.arange(3, 3 + num_values)
    if column.key == "string":
        keys: NumberKeys | TextKeys = TextKeys.from_values(values, ids_V)
    else:
        keys = NumberKeys(np.array([int(v, 16 if column.key == "hex32" else 10) for v in values], np.int64), ids_V)
    return ColumnVocabulary(column.key or "string", num_values, f"{column.name}:{num_values}", keys)
