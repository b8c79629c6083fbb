"""A sharding plan: every table, how it is placed, on which ranks, with estimated bytes and milliseconds."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rec.core.errors import TrainingError
from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.tables import TableSpec, check_tables

Sharding = Literal["table_wise", "data_parallel"]

# Order of magnitude of one CPU core and of gloo on one machine: the plan compares tables, it promises no time.
LOOKUP_NS = 80.0
BYTES_PER_NS = 2.0
EXCHANGE_BYTES_PER_NS = 0.5


class Placement(BaseModel):
    """One table's place. Figures are those of one of its ranks: bytes held, milliseconds in one step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: TableSpec
    sharding: Sharding
    ranks: tuple[int, ...]
    estimated_bytes: int
    estimated_ms: float


class PlanLimits(BaseModel):
    """What a plan must fit into. A table of at most ``data_parallel_max_bytes`` is held by every rank."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    world_size: int
    global_batch_size: int
    data_parallel_max_bytes: int
    bytes_per_rank: int


class ShardingPlan(BaseModel):
    """Placements in table order. JSON round trip by ``model_dump_json`` / ``model_validate_json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    world_size: int
    placements: tuple[Placement, ...]

    def placed(self, sharding: Sharding) -> tuple[Placement, ...]:
        return tuple(p for p in self.placements if p.sharding == sharding)

    def bytes_of_rank(self, rank: int) -> int:
        return sum(p.estimated_bytes for p in self.placements if rank in p.ranks)

    def ms_of_rank(self, rank: int) -> float:
        return sum(p.estimated_ms for p in self.placements if rank in p.ranks)

    def check(self, tables: Sequence[TableSpec], bytes_per_rank: int) -> None:
        """Raise TrainingError for a table that is not placed, placed twice or elsewhere than on the plan's ranks,
        for one that is not asked for, and for a rank that would hold more than ``bytes_per_rank``."""
        placed = [p.table for p in self.placements]
        for table in tables:
            if placed.count(table) != 1:
                raise TrainingError(
                    f"sharding plan: table {table.name!r} of {table.num_embeddings} x {table.embedding_dim} is placed "
                    f"{placed.count(table)} times, once is asked for; make the plan from the model's tables"
                )
        for placement in self.placements:
            self._check_placement(placement, tables)
        for rank in range(self.world_size):
            if (num_bytes := self.bytes_of_rank(rank)) > bytes_per_rank:
                largest = max((p for p in self.placements if rank in p.ranks), key=lambda p: p.estimated_bytes)
                raise TrainingError(
                    f"sharding plan: rank {rank} would hold {num_bytes} bytes of tables, {largest.table.name!r} alone "
                    f"{largest.estimated_bytes}, and may hold {bytes_per_rank}; add ranks or "
                    f"lower embedding_dim"
                )

    def _check_placement(self, placement: Placement, tables: Sequence[TableSpec]) -> None:
        name, ranks = placement.table.name, placement.ranks
        if placement.table not in tables:
            raise TrainingError(f"sharding plan: table {name!r} is placed, but the model has no such table")
        everywhere = tuple(range(self.world_size))
        fits = ranks == everywhere if placement.sharding == "data_parallel" else len(ranks) == 1
        if not fits or not set(ranks) <= set(everywhere):
            raise TrainingError(
                f"sharding plan: table {name!r} is {placement.sharding} on ranks {list(ranks)} of a group of "
                f"{self.world_size}; table_wise takes one of its ranks, data_parallel all of them"
            )


def plan_sharding(tables: Sequence[TableSpec], limits: PlanLimits, optimizer: SparseOptimizer) -> ShardingPlan:
    """Return a checked plan: small tables on every rank, the others, dearest first, on the rank with least to do
    of those that have room."""
    check_tables(tables)
    placements: dict[str, Placement] = {}
    load_ms = [0.0] * limits.world_size
    load_bytes = [0] * limits.world_size
    small = [t for t in tables if t.weight_bytes <= limits.data_parallel_max_bytes]
    for table in small:
        placements[table.name] = _place(table, "data_parallel", range(limits.world_size), limits, optimizer)
    everywhere = sum(p.estimated_bytes for p in placements.values())
    large = [_place(t, "table_wise", (0,), limits, optimizer) for t in tables if t not in small]
    for placement in sorted(large, key=lambda p: (-p.estimated_ms, -p.estimated_bytes, p.table.name)):
        free = limits.bytes_per_rank - everywhere - placement.estimated_bytes
        rank = min(range(limits.world_size), key=lambda r: (load_bytes[r] > free, load_ms[r], load_bytes[r], r))
        load_ms[rank] += placement.estimated_ms
        load_bytes[rank] += placement.estimated_bytes
        placements[placement.table.name] = placement.model_copy(update={"ranks": (rank,)})
    plan = ShardingPlan(world_size=limits.world_size, placements=tuple(placements[t.name] for t in tables))
    plan.check(tables, limits.bytes_per_rank)
    return plan


def _place(
    table: TableSpec, sharding: Sharding, ranks: Sequence[int], limits: PlanLimits, optimizer: SparseOptimizer
) -> Placement:
    num_bytes = table.weight_bytes + optimizer.state_bytes(table)
    if sharding == "data_parallel":
        num_bytes += table.weight_bytes  # a dense gradient as large as the table
        ms = _data_parallel_ms(table, limits)
    else:
        ms = _table_wise_ms(table, limits)
    return Placement(
        table=table, sharding=sharding, ranks=tuple(ranks), estimated_bytes=num_bytes, estimated_ms=round(ms, 6)
    )


def _table_wise_ms(table: TableSpec, limits: PlanLimits) -> float:
    """One rank looks up the whole global batch; ids come in, vectors go out, gradients come back."""
    num_lookups = limits.global_batch_size * len(table.feature_names)
    row_bytes = 4 * table.embedding_dim
    away = (limits.world_size - 1) / limits.world_size
    exchange = num_lookups * away * (8 + 2 * row_bytes) / EXCHANGE_BYTES_PER_NS
    return (num_lookups * (LOOKUP_NS + 4 * row_bytes / BYTES_PER_NS) + exchange) / 1e6


def _data_parallel_ms(table: TableSpec, limits: PlanLimits) -> float:
    """Each rank looks up its own rows; the dense gradient is cleared, filled, exchanged and applied."""
    num_lookups = limits.global_batch_size / limits.world_size * len(table.feature_names)
    row_bytes = 4 * table.embedding_dim
    away = (limits.world_size - 1) / limits.world_size
    exchange = 2 * away * table.weight_bytes / EXCHANGE_BYTES_PER_NS
    return (
        num_lookups * (LOOKUP_NS + 4 * row_bytes / BYTES_PER_NS) + 4 * table.weight_bytes / BYTES_PER_NS + exchange
    ) / 1e6
