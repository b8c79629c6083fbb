"""A piece of an embedding table on one rank, as a checkpoint writes and reads it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class TableShard:
    """Rows [a, b) and columns [c, d) of one table: live views of weight and optimizer state, not copies.

    ``parts`` holds "weight" and, by the optimizer, "momentum1". A state with one dimension has one number a row.
    """

    table: str
    rows: Range
    columns: Range
    parts: dict[str, torch.Tensor]


# (table, part, rows, columns) -> the values of that block, [rows, columns] or [rows].
ReadBlock = Callable[[str, str, Range, Range], torch.Tensor]


@torch.no_grad()
def fill_shard(shard: TableShard, read: ReadBlock) -> None:
    """Overwrite every part of a shard with what ``read`` returns for its block."""
    for part, tensor in shard.parts.items():
        tensor.copy_(read(shard.table, part, shard.rows, shard.columns).view(tensor.shape))
