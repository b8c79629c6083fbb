"""Tables that live whole on one rank: TorchRec's sharded embedding bags over FBGEMM's fused optimizers."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor, KeyedTensor, PoolingType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import (
    Awaitable,
    EnumerableShardingSpec,
    ParameterSharding,
    ShardingEnv,
    ShardingType,
    ShardMetadata,
)

from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.planner import Placement
from rec.embedding.shards import TableShard
from rec.embedding.tables import TableSpec


class TableWiseTables(nn.Module):
    """Look-ups of the placed tables. The backward pass updates them: their gradients never leave it.

    TorchRec divides what comes back by the world size, so a loss that is a mean over the rank's rows updates a table
    as the mean over the global batch does.
    """

    def __init__(
        self,
        placements: Sequence[Placement],
        optimizer: SparseOptimizer,
        group: dist.ProcessGroup,
        device: torch.device,
    ):
        super().__init__()
        # By position: TorchRec makes modules of the names it is given, and not every column's is one.
        self._names = {f"table_{k}": p.table.name for k, p in enumerate(placements)}
        collection = EmbeddingBagCollection(
            tables=[_bag_config(name, p.table) for name, p in zip(self._names, placements)],
            device=torch.device("meta"),
        )
        sharder = EmbeddingBagCollectionSharder(fused_params=optimizer.fused_params)
        shardings = {name: _parameter_sharding(p, device) for name, p in zip(self._names, placements)}
        self.bags = sharder.shard(collection, shardings, ShardingEnv.from_process_group(group), device)

    def forward(self, ids: KeyedJaggedTensor) -> Awaitable[KeyedTensor]:
        """Start the exchange. What arrives is keyed by feature in an order of TorchRec's own: index it by name."""
        return self.bags(ids)

    def shards(self) -> list[TableShard]:
        """Return the pieces that this rank holds."""
        states = self.bags.fused_optimizer.state_dict()["state"]
        shards = []
        for key, weight in self.bags.state_dict().items():
            for local in weight.local_shards():
                (row, column), (num_rows, num_columns) = local.metadata.shard_offsets, local.metadata.shard_sizes
                parts = {"weight": local.tensor}
                for name, state in states[key].items():
                    parts[name.rpartition(".")[2]] = state.local_shards()[0].tensor
                shard = TableShard(
                    table=self._names[key.split(".")[1]],
                    rows=(row, row + num_rows),
                    columns=(column, column + num_columns),
                    parts=parts,
                )
                shards.append(shard)
        return shards


def _bag_config(name: str, table: TableSpec) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=name,
        num_embeddings=table.num_embeddings,
        embedding_dim=table.embedding_dim,
        feature_names=list(table.feature_names),
        pooling=PoolingType.MEAN if table.pooling == "mean" else PoolingType.SUM,
    )


def _parameter_sharding(placement: Placement, device: torch.device) -> ParameterSharding:
    (rank,) = placement.ranks
    shard = ShardMetadata(
        shard_offsets=[0, 0],
        shard_sizes=[placement.table.num_embeddings, placement.table.embedding_dim],
        placement=f"rank:{rank}/{device}",
    )
    return ParameterSharding(
        sharding_type=ShardingType.TABLE_WISE.value,
        compute_kernel="fused",
        ranks=[rank],
        sharding_spec=EnumerableShardingSpec([shard]),
    )
