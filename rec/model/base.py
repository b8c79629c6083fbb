"""What a model is to the trainer, the exporter and the checkpoint."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import nn

from rec.core.errors import ConfigError
from rec.core.schema import FeatureSchema
from rec.embedding.tables import Pooling, TableSpec, stream_seed


class Model(nn.Module):
    """The dense part of a model, the part that ONNX exports. Its tables live outside, sharded over the ranks."""

    def tables(self, schema: FeatureSchema) -> list[TableSpec]:
        """Return the embedding tables that the model reads, in the order of the schema's sparse columns."""
        raise NotImplementedError

    def forward(self, dense_BD: torch.Tensor, embedded_BFE: torch.Tensor) -> torch.Tensor:
        """Return logits_B."""
        raise NotImplementedError


class Sized(Protocol):
    """A model config with the width and pooling of its tables."""

    embedding_dim: int
    pooling: Pooling


def one_table_per_column(schema: FeatureSchema, config: Sized) -> list[TableSpec]:
    """Return a table for each sparse column. Raises ConfigError for a column that has not been encoded."""
    for column in schema.sparse:
        if column.num_embeddings is None:
            raise ConfigError(
                f"sparse column {column.name}: num_embeddings is not set; encode it with categorify first"
            )
    return [
        TableSpec(
            name=column.name,
            num_embeddings=column.num_embeddings or 0,
            embedding_dim=config.embedding_dim,
            feature_names=(column.name,),
            pooling=config.pooling,
        )
        for column in schema.sparse
    ]


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Draw every weight from (seed, parameter name): matrices by Glorot and Bengio 2010, biases as DLRM's reference.

    Drawn on the CPU, so that neither device nor world size changes a weight.
    """
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(stream_seed(seed, "weight", name))
        std = math.sqrt((2 if parameter.dim() > 1 else 1) / sum(parameter.shape))
        parameter.copy_(torch.empty(parameter.shape).normal_(0, std, generator=generator))


def require_columns(schema: FeatureSchema, model_name: str) -> None:
    """Raise ConfigError where a schema has no dense or no sparse column."""
    columns: Sequence[tuple[str, int]] = (("dense", len(schema.dense)), ("sparse", len(schema.sparse)))
    for role, count in columns:
        if count == 0:
            raise ConfigError(f"model {model_name}: the schema has no {role} column and the model needs one; add one")
