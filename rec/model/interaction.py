"""Pairwise interactions of feature vectors."""

import torch
from torch import nn


class DotInteraction(nn.Module):
    """The dot product of every pair of different features, in the order of the upper triangle.

    Shapes: B rows, V vectors a row, E their width, P = V(V-1)/2 pairs.
    """

    pairs_P: torch.Tensor

    def __init__(self, num_vectors: int):
        super().__init__()
        first, second = torch.triu_indices(num_vectors, num_vectors, offset=1)
        # Taking pairs by one flat index is faster than by two, forward and backward.
        self.register_buffer("pairs_P", first * num_vectors + second, persistent=False)

    @property
    def num_pairs(self) -> int:
        return len(self.pairs_P)

    def forward(self, vectors_BVE: torch.Tensor) -> torch.Tensor:
        """Map [B, V, E] to [B, P]."""
        dots_BVV = torch.bmm(vectors_BVE, vectors_BVE.transpose(1, 2))
        return dots_BVV.flatten(1).index_select(1, self.pairs_P)
