"""Embedding tables: what each is called, how large it is, which features read it, and the weights it starts from."""

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from rec.core.errors import ConfigError

Pooling = Literal["sum", "mean"]


class TableSpec(BaseModel):
    """One embedding table. Features of one table share its rows; an empty bag pools to the zero vector.

    FBGEMM's kernels read rows by four numbers: ``embedding_dim`` is a multiple of 4.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_embeddings: int = Field(ge=1)
    embedding_dim: int = Field(ge=4, multiple_of=4)
    feature_names: tuple[str, ...] = Field(min_length=1)
    pooling: Pooling = "sum"

    @property
    def weight_bytes(self) -> int:
        return 4 * self.num_embeddings * self.embedding_dim


def check_tables(tables: Sequence[TableSpec]) -> None:
    """Raise ConfigError where two tables share a name or a feature reads two tables."""
    names = [t.name for t in tables]
    features = [f for t in tables for f in t.feature_names]
    for kind, found in (("table", names), ("feature", features)):
        twice = sorted({n for n in found if found.count(n) > 1})
        if twice:
            raise ConfigError(
                f"{kind} {twice[0]!r} appears {found.count(twice[0])} times among the tables; name it once"
            )


def stream_seed(*parts: int | str) -> int:
    """Return the seed of a random stream named by its parts: a function of these alone, the same on every machine."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def initial_weight(table: TableSpec, seed: int) -> torch.Tensor:
    """Return float32 [num_embeddings, embedding_dim], uniform within ±1/√num_embeddings (Naumov et al. 2019, DLRM).

    Drawn on the CPU from (seed, table name): not from the world size, the rank or the other tables.
    """
    generator = torch.Generator().manual_seed(stream_seed(seed, "table", table.name))
    bound = 1 / math.sqrt(table.num_embeddings)
    weight = torch.empty(table.num_embeddings, table.embedding_dim)
    return weight.uniform_(-bound, bound, generator=generator)
