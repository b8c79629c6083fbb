"""What training is asked to do and what it has done so far."""

from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from rec.core.schema import FeatureSchema
from rec.core.tables import Days, Evaluation, FeatureTable
from rec.model.config import ModelConfig
from rec.train.config import Metric, TrainConfig


class TrainingJob(BaseModel):
    """One training, the same record on every rank. ``folder`` is shared by all of them and holds its checkpoints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: FeatureTable
    days: Days
    model: ModelConfig = Field(default_factory=ModelConfig)
    config: TrainConfig = Field(default_factory=TrainConfig)
    folder: str


class EvaluationJob(BaseModel):
    """Scoring some days with a checkpoint. ``scores_folder`` asks for each row's key, label and logit as well."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str
    table: FeatureTable
    days: tuple[int, ...]
    scores_folder: str | None = None


def table_bytes(schema: FeatureSchema, model: ModelConfig) -> int:
    """Return the size of the weights of all embedding tables."""
    return 4 * model.embedding_dim * sum(column.num_embeddings or 0 for column in schema.sparse)


class Report(Protocol):
    """Hears of progress, at least once a step. ``step`` counts from the start of training, in an evaluation from its
    own; the next report comes within ``limit_s`` where that is set."""

    def __call__(
        self, *, phase: str, step: int | None = None, limit_s: float | None = None, **figures: float | int | str
    ) -> None: ...


class LossPoint(NamedTuple):
    """Mean training loss of the steps since the point before, in nats a row."""

    step: int
    loss: float


class EpochRecord(BaseModel):
    """One whole epoch: its number from 1, steps since the start, mean training loss, figures of the valid days."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    step: int
    loss: float
    evaluation: Evaluation | None = None


class TrainingLog(BaseModel):
    """All that training remembers beside weights and row order; a resumed run goes on with it.

    ``train_seconds`` are rank 0's in steps, the wait for their rows included; no evaluation and no checkpoint.
    """

    model_config = ConfigDict(extra="forbid")

    step: int = 0
    train_seconds: float = 0.0
    epochs: list[EpochRecord] = []
    losses: list[LossPoint] = []
    epoch_loss_sum: float = 0.0
    epoch_steps: int = 0
    point_loss_sum: float = 0.0
    point_steps: int = 0

    def add_step(self, loss: float, steps_per_point: int, seconds: float) -> None:
        self.step += 1
        self.train_seconds += seconds
        self.epoch_loss_sum += loss
        self.epoch_steps += 1
        self.point_loss_sum += loss
        self.point_steps += 1
        if self.point_steps >= steps_per_point:
            self.losses.append(LossPoint(self.step, self.point_loss_sum / self.point_steps))
            self.point_loss_sum, self.point_steps = 0.0, 0

    def add_epoch(self, evaluation: Evaluation | None) -> None:
        loss = self.epoch_loss_sum / self.epoch_steps
        self.epochs.append(EpochRecord(epoch=len(self.epochs) + 1, step=self.step, loss=loss, evaluation=evaluation))
        self.epoch_loss_sum, self.epoch_steps = 0.0, 0

    def rows_per_second(self, global_batch_size: int) -> float | None:
        """Return trained rows a second, over all ranks."""
        return self.step * global_batch_size / self.train_seconds if self.train_seconds else None

    def best_epoch(self, metric: Metric) -> EpochRecord | None:
        """Return the epoch with the best valid figure, the earlier of equals; None where no epoch was evaluated."""
        scored = [(e, e.evaluation) for e in self.epochs if e.evaluation is not None]
        if not scored:
            return None
        sign = -1 if metric == "auc" else 1
        return min(scored, key=lambda pair: sign * getattr(pair[1], metric))[0]

    def is_finished(self, config: TrainConfig) -> bool:
        """Tell whether all epochs are trained, or ``patience`` of them without a better valid figure."""
        return len(self.epochs) >= config.max_epochs or self.has_stopped_early(config)

    def has_stopped_early(self, config: TrainConfig) -> bool:
        """Tell whether epochs were left out because ``patience`` of them were without a better valid figure."""
        best = self.best_epoch(config.metric)
        stalled = best is not None and len(self.epochs) - best.epoch >= config.patience
        return stalled and len(self.epochs) < config.max_epochs
