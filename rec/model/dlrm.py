"""DLRM: bottom MLP over dense features, dot interaction with the embeddings, top MLP (Naumov et al. 2019).

Shapes: B rows, D dense features, F sparse features, E = embedding_dim, V = F + 1 vectors, P pairs of vectors.
"""

import torch

from rec.core.schema import FeatureSchema
from rec.embedding.tables import TableSpec
from rec.model.base import Model, one_table_per_column, require_columns
from rec.model.config import DLRMConfig
from rec.model.interaction import DotInteraction
from rec.model.mlp import MLP


class DLRM(Model):
    """The dense part of DLRM for the columns of a schema."""

    def __init__(self, config: DLRMConfig, schema: FeatureSchema):
        super().__init__()
        require_columns(schema, config.name)
        self.config = config
        width = config.embedding_dim
        self.bottom_mlp = MLP([len(schema.dense), *config.bottom_mlp_hidden, width], end_with_relu=True)
        self.interaction = DotInteraction(len(schema.sparse) + 1)
        num_inputs = width + self.interaction.num_pairs
        self.top_mlp = MLP([num_inputs, *config.top_mlp_hidden, 1], end_with_relu=False)

    def tables(self, schema: FeatureSchema) -> list[TableSpec]:
        return one_table_per_column(schema, self.config)

    def forward(self, dense_BD: torch.Tensor, embedded_BFE: torch.Tensor) -> torch.Tensor:
        bottom_BE = self.bottom_mlp(dense_BD)
        vectors_BVE = torch.cat([bottom_BE.unsqueeze(1), embedded_BFE], 1)
        pairs_BP = self.interaction(vectors_BVE)
        return self.top_mlp(torch.cat([bottom_BE, pairs_BP], 1)).squeeze(1)
