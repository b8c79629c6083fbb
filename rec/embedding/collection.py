"""All embedding tables of a model on a group of ranks, each as the sharding plan places it.

Shapes: B rows of this rank, F features, E = embedding_dim, N ids.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torchrec import KeyedJaggedTensor

from rec.core.errors import ConfigError
from rec.embedding.data_parallel import DataParallelTables
from rec.embedding.ids import check_ids
from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.planner import ShardingPlan
from rec.embedding.shards import ReadBlock, TableShard, fill_shard
from rec.embedding.table_wise import TableWiseTables
from rec.embedding.tables import initial_weight


def group_device(group: dist.ProcessGroup) -> torch.device:
    """Return where a group's tensors live: the current CUDA device where NCCL serves it, else the CPU."""
    if "nccl" in str(dist.get_backend_config(group)):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


class ShardedEmbeddings(nn.Module):
    """Look-ups of all features in the order of ``feature_names``. Every rank must call it in every step.

    Each weight has one owner. Table-wise tables are updated by their own backward pass; data-parallel ones by
    ``step()`` once the caller has averaged the gradients of ``replicated_parameters`` over the ranks.
    """

    def __init__(
        self,
        plan: ShardingPlan,
        feature_names: Sequence[str],
        optimizer: SparseOptimizer,
        seed: int,
        group: dist.ProcessGroup,
    ):
        super().__init__()
        self.device = group_device(group)
        self.feature_names = tuple(feature_names)
        table_of = {f: p.table for p in plan.placements for f in p.table.feature_names}
        if set(table_of) != set(self.feature_names):
            odd = sorted(set(table_of) ^ set(self.feature_names))
            raise ConfigError(f"feature {odd[0]!r} has rows without a table or a table without rows; match the schema")
        self.num_embeddings = [table_of[f].num_embeddings for f in self.feature_names]
        sharded, replicated = plan.placed("table_wise"), plan.placed("data_parallel")
        self._is_sharded = [table_of[f] in [p.table for p in sharded] for f in self.feature_names]
        self.table_wise = TableWiseTables(sharded, optimizer, group, self.device) if sharded else None
        self.data_parallel = DataParallelTables([p.table for p in replicated], optimizer, self.device)
        self._owns_replicas = dist.get_rank(group) == 0
        tables = {p.table.name: p.table for p in plan.placements}
        for shard in self._held():
            shard.parts["weight"].copy_(
                initial_weight(tables[shard.table], seed)[slice(*shard.rows), slice(*shard.columns)]
            )

    @property
    def replicated_parameters(self) -> list[nn.Parameter]:
        return list(self.data_parallel.weights)

    def forward(self, values_N: torch.Tensor, lengths_FB: torch.Tensor) -> torch.Tensor:
        """Return embedded_BFE for feature-major ids on the host. Raises IdRangeError before anything is looked up."""
        check_ids(values_N, lengths_FB, self.feature_names, self.num_embeddings)
        counts = lengths_FB.sum(1).tolist()
        values = dict(zip(self.feature_names, values_N.to(self.device).split(counts)))
        lengths = dict(zip(self.feature_names, lengths_FB.to(self.device)))
        arriving = self._start_exchange(values, lengths)
        replicated = [f for f, sharded in zip(self.feature_names, self._is_sharded) if not sharded]
        pooled = self.data_parallel(values, {f: _offsets(lengths[f]) for f in replicated})
        if arriving is not None:
            pooled |= arriving.wait().to_dict()
        return torch.stack([pooled[f] for f in self.feature_names], 1)

    def step(self) -> None:
        """Update the data-parallel tables with the averaged gradients that stand in them."""
        self.data_parallel.step()

    def shards(self) -> list[TableShard]:
        """Return the pieces that this rank answers for; replicas belong to rank 0."""
        held = self._held()
        replicated = {t.name for t in self.data_parallel.tables}
        return [s for s in held if self._owns_replicas or s.table not in replicated]

    def load(self, read: ReadBlock) -> None:
        """Overwrite weights and optimizer states of all that this rank holds, replicas included."""
        for shard in self._held():
            fill_shard(shard, read)

    def _held(self) -> list[TableShard]:
        return (self.table_wise.shards() if self.table_wise else []) + self.data_parallel.shards()

    def _start_exchange(self, values: dict[str, torch.Tensor], lengths: dict[str, torch.Tensor]):
        if self.table_wise is None:
            return None
        sharded = [f for f, held in zip(self.feature_names, self._is_sharded) if held]
        ids = KeyedJaggedTensor(
            keys=sharded,
            values=torch.cat([values[f] for f in sharded]),
            lengths=torch.cat([lengths[f] for f in sharded]),
        )
        return self.table_wise(ids)


def _offsets(lengths_B: torch.Tensor) -> torch.Tensor:
    return torch.cat([lengths_B.new_zeros(1, dtype=torch.int64), lengths_B.cumsum(0)])
