"""Ids are checked on the host: FBGEMM clamps an id outside its table to row 0 without a word."""

from collections.abc import Sequence

import torch

from rec.core.errors import IdRangeError


def check_ids(
    values_N: torch.Tensor, lengths_FB: torch.Tensor, feature_names: Sequence[str], num_embeddings: Sequence[int]
) -> None:
    """Raise IdRangeError with column, id and table size for the first id outside [0, num_embeddings).

    ``values_N`` is feature-major: the ids of feature 0's bags, then those of feature 1's, …
    """
    values_of_F = lengths_FB.sum(1)
    num_values = int(values_of_F.sum())
    if num_values != len(values_N):
        raise IdRangeError(f"{len(values_N)} ids for lengths that add up to {num_values}; lengths and ids must agree")
    sizes_N = torch.repeat_interleave(torch.tensor(num_embeddings), values_of_F.long(), output_size=num_values)
    outside_N = (values_N < 0) | (values_N >= sizes_N)
    if not outside_N.any():
        return
    position = int(outside_N.nonzero()[0])
    feature = int((values_of_F.cumsum(0) <= position).sum())
    raise IdRangeError(
        f"column {feature_names[feature]}: id {int(values_N[position])} is outside its table of "
        f"{num_embeddings[feature]} rows; encode the rows and train with the same state"
    )
