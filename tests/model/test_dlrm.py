"""DLRM: its formula, its weights, its export."""

import numpy as np
import onnxruntime
import pytest
import torch

from rec.core.config import parse_config
from rec.core.errors import ConfigError
from rec.core.schema import Column, FeatureSchema
from rec.model.config import DLRMConfig
from rec.model.interaction import DotInteraction
from rec.model.registry import build_model

SCHEMA = FeatureSchema(
    columns=(
        Column(name="label", role="label", dtype="int32"),
        *(Column(name=f"I{k}", role="dense", dtype="float32") for k in range(3)),
        *(Column(name=f"C{k}", role="sparse", dtype="int32", num_embeddings=10 + k) for k in range(4)),
    )
)
CONFIG = DLRMConfig(embedding_dim=8, bottom_mlp_hidden=(12,), top_mlp_hidden=(20, 6))


def inputs(batch_size):
    generator = torch.Generator().manual_seed(batch_size)
    return torch.randn(batch_size, 3, generator=generator), torch.randn(batch_size, 4, 8, generator=generator)


def test_pairs_are_dot_products_of_different_vectors():
    vectors = torch.randn(5, 4, 3)
    expected = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(4) for j in range(i + 1, 4)]
    interaction = DotInteraction(4)
    assert interaction.num_pairs == 6
    assert torch.allclose(interaction(vectors), torch.stack(expected, 1), atol=1e-6)


def test_logits_follow_the_formula_step_by_step():
    model = build_model(CONFIG, SCHEMA, 1)
    dense, embedded = inputs(9)
    weights = dict(model.named_parameters())
    hidden = torch.relu(dense @ weights["bottom_mlp.layers.0.weight"].T + weights["bottom_mlp.layers.0.bias"])
    bottom = torch.relu(hidden @ weights["bottom_mlp.layers.2.weight"].T + weights["bottom_mlp.layers.2.bias"])
    vectors = torch.cat([bottom[:, None], embedded], 1)
    pairs = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(5) for j in range(i + 1, 5)]
    top = torch.cat([bottom, torch.stack(pairs, 1)], 1)
    for layer in (0, 2, 4):
        top = top @ weights[f"top_mlp.layers.{layer}.weight"].T + weights[f"top_mlp.layers.{layer}.bias"]
        top = top if layer == 4 else torch.relu(top)
    assert torch.allclose(model(dense, embedded), top[:, 0], atol=1e-5)


def test_hidden_widths_come_from_the_config():
    shapes = {n: tuple(p.shape) for n, p in build_model(CONFIG, SCHEMA, 1).named_parameters() if n.endswith("weight")}
    assert list(shapes.values()) == [(12, 3), (8, 12), (20, 8 + 10), (6, 20), (1, 6)]
    plain = build_model(DLRMConfig(embedding_dim=4, bottom_mlp_hidden=(), top_mlp_hidden=()), SCHEMA, 1)
    assert [tuple(p.shape) for n, p in plain.named_parameters() if n.endswith("weight")] == [(4, 3), (1, 14)]


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_one_table_for_each_sparse_column(pooling):
    config = CONFIG.model_copy(update={"pooling": pooling})
    tables = build_model(config, SCHEMA, 1).tables(SCHEMA)
    assert [(t.name, t.num_embeddings, t.feature_names) for t in tables] == [
        (f"C{k}", 10 + k, (f"C{k}",)) for k in range(4)
    ]
    assert {(t.embedding_dim, t.pooling) for t in tables} == {(8, pooling)}


def test_weights_depend_on_the_seed_and_not_on_the_global_generator():
    torch.manual_seed(1)
    first = build_model(CONFIG, SCHEMA, 5).state_dict()
    torch.manual_seed(2)
    second = build_model(CONFIG, SCHEMA, 5).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = build_model(CONFIG, SCHEMA, 6).state_dict()
    assert not any(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("role", ["dense", "sparse"])
def test_a_schema_without_dense_or_sparse_columns_is_refused(role):
    schema = FeatureSchema(columns=tuple(c for c in SCHEMA.columns if c.role != role))
    with pytest.raises(ConfigError, match=f"model dlrm: the schema has no {role} column"):
        build_model(CONFIG, schema, 1)


def test_a_column_that_was_not_encoded_is_refused():
    schema = SCHEMA.replace(Column(name="C2", role="sparse", dtype="int32"))
    with pytest.raises(ConfigError, match="sparse column C2: num_embeddings is not set"):
        build_model(CONFIG, schema, 1).tables(schema)


@pytest.mark.parametrize("content", [{"embedding_dim": 6}, {"embedding_dim": 0}, {"name": "dlmr"}, {"pooling": "max"}])
def test_values_outside_their_range_are_refused_by_name(content):
    with pytest.raises(ConfigError, match=f"model.yaml: {next(iter(content))} = "):
        parse_config(DLRMConfig, content, "model.yaml")


def test_an_unknown_key_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="unknown key 'embeding_dim'; did you mean 'embedding_dim'"):
        parse_config(DLRMConfig, {"embeding_dim": 8}, "model.yaml")


def test_the_onnx_graph_takes_any_batch_size(tmp_path):
    model = build_model(CONFIG, SCHEMA, 1).eval()
    path = str(tmp_path / "model.onnx")
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        model,
        inputs(2),
        path,
        input_names=["dense", "embedded"],
        dynamic_shapes=({0: batch}, {0: batch}),
        dynamo=True,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch_size in (1, 7, 64, 2048):
        dense, embedded = inputs(batch_size)
        (found,) = session.run(None, {"dense": dense.numpy(), "embedded": embedded.numpy()})
        with torch.no_grad():
            assert np.allclose(found, model(dense, embedded).numpy(), rtol=1e-5, atol=1e-5)
