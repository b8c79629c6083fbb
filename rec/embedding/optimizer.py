"""Sparse optimizers: fused into the look-up for sharded tables, the same formulas for data-parallel ones.

==================  ==============================  ======================================
name                state of a table [N, E]         row update, gradient g
==================  ==============================  ======================================
sgd                 none                            w -= lr · g
adagrad             momentum1 [N, E]                m += g²; w -= lr · g / (√m + eps)
rowwise_adagrad     momentum1 [N]                   m += mean(g²); w -= lr · g / (√m + eps)
==================  ==============================  ======================================
"""

from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from pydantic import BaseModel, ConfigDict

from rec.embedding.config import SparseOptimizerName
from rec.embedding.tables import TableSpec

EPS = 1e-8
_FUSED = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


class SparseOptimizer(BaseModel):
    """Which optimizer updates the embedding tables. A row without a gradient keeps its weight and its state."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: SparseOptimizerName
    learning_rate: float

    @property
    def fused_params(self) -> dict[str, Any]:
        """What TorchRec hands to FBGEMM's table batched embedding."""
        return {"optimizer": _FUSED[self.name], "learning_rate": self.learning_rate, "eps": EPS}

    def state_shape(self, num_rows: int, num_columns: int) -> tuple[int, ...] | None:
        if self.name == "sgd":
            return None
        return (num_rows,) if self.name == "rowwise_adagrad" else (num_rows, num_columns)

    def state_bytes(self, table: TableSpec) -> int:
        shape = self.state_shape(table.num_embeddings, table.embedding_dim)
        return 4 * torch.Size(shape).numel() if shape else 0

    @torch.no_grad()
    def apply(self, weight: torch.Tensor, gradient: torch.Tensor, momentum1: torch.Tensor | None) -> None:
        """Update a whole table and its state in place."""
        if momentum1 is None:
            weight.add_(gradient, alpha=-self.learning_rate)
            return
        squares = gradient.square()
        momentum1.add_(squares.mean(1) if momentum1.dim() == 1 else squares)
        scale = momentum1.sqrt().add_(EPS)
        weight.addcdiv_(gradient, scale[:, None] if scale.dim() == 1 else scale, value=-self.learning_rate)
