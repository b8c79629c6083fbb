"""A stack of linear layers."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class MLP(nn.Module):
    """Linear layers of the given widths with a ReLU after each, after the last only where ``end_with_relu``."""

    def __init__(self, widths: Sequence[int], *, end_with_relu: bool):
        super().__init__()
        layers: list[nn.Module] = []
        for num_inputs, num_outputs in pairwise(widths):
            layers += [nn.Linear(num_inputs, num_outputs), nn.ReLU()]
        self.layers = nn.Sequential(*(layers if end_with_relu else layers[:-1]))

    def forward(self, input_BI: torch.Tensor) -> torch.Tensor:
        """Map [B, widths[0]] to [B, widths[-1]]."""
        return self.layers(input_BI)
