"""Small tables that every rank holds whole. Their gradients are averaged with those of the dense weights."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.shards import TableShard
from rec.embedding.tables import TableSpec


class DataParallelTables(nn.Module):
    """Replicas of whole tables: bit-equal on all ranks as long as each is given the same gradient in each step.

    TorchRec would wrap them in DistributedDataParallel, whose own reduction is a second owner of the same weights.
    """

    def __init__(self, tables: Sequence[TableSpec], optimizer: SparseOptimizer, device: torch.device):
        super().__init__()
        self.tables = tuple(tables)
        self.optimizer = optimizer
        # Names hold dots at times, which a ParameterDict refuses: parameters go by position.
        self.weights = nn.ParameterList(
            torch.empty(t.num_embeddings, t.embedding_dim, device=device) for t in self.tables
        )
        shapes = [optimizer.state_shape(t.num_embeddings, t.embedding_dim) for t in self.tables]
        self.momentum1 = [None if shape is None else torch.zeros(shape, device=device) for shape in shapes]

    def forward(self, values: dict[str, torch.Tensor], offsets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return pooled [B, E] by feature; ``offsets`` of a feature has B + 1 entries."""
        return {
            feature: functional.embedding_bag(
                values[feature], weight, offsets[feature], mode=table.pooling, include_last_offset=True
            )
            for table, weight in zip(self.tables, self.weights)
            for feature in table.feature_names
        }

    def step(self) -> None:
        """Apply the gradients that stand in the weights and clear them."""
        for weight, momentum1 in zip(self.weights, self.momentum1):
            if weight.grad is not None:
                self.optimizer.apply(weight, weight.grad, momentum1)
                weight.grad = None

    def shards(self) -> list[TableShard]:
        """Return every table, whole."""
        return [
            TableShard(
                table=table.name,
                rows=(0, table.num_embeddings),
                columns=(0, table.embedding_dim),
                parts={"weight": weight.detach()} | ({} if momentum1 is None else {"momentum1": momentum1}),
            )
            for table, weight, momentum1 in zip(self.tables, self.weights, self.momentum1)
        ]
