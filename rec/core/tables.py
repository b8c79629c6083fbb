"""Records that stages hand to each other, and the protocol of a group of ranks."""

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.dataclasses import dataclass

from rec.core.config import Config
from rec.core.errors import DayError
from rec.core.schema import FeatureSchema


class Days(Config):
    """The only split: which days train, which choose, which test. A day is an int (yyyymmdd, or a captured number)."""

    train: tuple[int, ...]
    valid: tuple[int, ...] = ()
    test: tuple[int, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _ranges_are_days(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {k: tuple(v) if isinstance(v, range) else v for k, v in given.items()}

    @model_validator(mode="after")
    def _disjoint(self) -> "Days":
        if not self.train:
            raise DayError("days.train is empty; name at least one day")
        everything = [*self.train, *self.valid, *self.test]
        twice = sorted({d for d in everything if everything.count(d) > 1})
        if twice:
            raise DayError(f"day {twice[0]} appears twice in days.train, days.valid and days.test; name it once")
        return self


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class FeatureTable:
    """One version of a feature table in Delta, partitioned by ``day``; ``num_rows`` counts unlabelled rows too."""

    uri: str
    version: int
    schema: FeatureSchema
    num_rows: int
    days: tuple[int, ...]
    state_id: str


class Evaluation(BaseModel):
    """Exact figures over every labelled row of the days. ``log_loss`` is in nats a row; ``normalized_entropy`` divides
    it by the entropy of the mean label (He et al. 2014, Practical Lessons from Predicting Clicks on Ads)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    days: tuple[int, ...]
    num_rows: int
    num_positive: int
    auc: float
    log_loss: float
    normalized_entropy: float
    calibration: float


class Ranks(Protocol):
    """A group of processes that run the same program. Tensors are torch tensors on the CPU or the rank's GPU."""

    rank: int
    world_size: int
    local_rank: int

    def all_reduce(self, tensors: Sequence[Any], *, average: bool) -> None:
        """Reduce each tensor in place over all ranks, in one grouped exchange of fixed order."""

    def all_gather(self, value: Any) -> list[Any]:
        """Return every rank's JSON-serialisable value, by rank."""

    def all_to_all(self, tensor: Any, send_splits: Sequence[int], receive_splits: Sequence[int]) -> Any:
        """Send consecutive slices of ``tensor`` along dimension 0 to ranks 0, 1, …; return what arrives, by rank."""

    def barrier(self) -> None:
        """Return when every rank has called it."""
