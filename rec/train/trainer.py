"""Training on one rank of a group: every rank runs the same program."""

import logging
import time
from typing import Any

import torch

from rec.core.errors import CheckpointError
from rec.core.tables import Evaluation, Ranks
from rec.data.loader import make_loader
from rec.train.checkpoint import BlockReader, Checkpoint, load_dense
from rec.train.checkpoint_folder import CheckpointFolder
from rec.train.evaluation import evaluate_rows, evaluation_loader, no_report
from rec.train.labels import require_both_labels
from rec.train.learner import Learner
from rec.train.progress import Speed, seconds_allowed
from rec.train.records import Report, TrainingJob, TrainingLog, table_bytes

logger = logging.getLogger(__name__)

_LOSS_POINTS_PER_EPOCH = 100
# A resumed training may change these: they decide how fast and how long, never which rows or which update.
_FREE_TO_CHANGE = {
    "num_proc",
    "num_workers",
    "max_epochs",
    "patience",
    "refit",
    "data_parallel_max_bytes",
    "embedding_bytes_per_rank",
    "checkpoint_every_steps",
}


def train(ranks: Ranks, job: TrainingJob, report: Report | None = None) -> Checkpoint:
    """Train, or go on from the last complete checkpoint in ``job.folder``, and return the best checkpoint.

    torch.distributed must be initialised over the same ranks. Raises TrainingError, LoaderError, CheckpointError.
    """
    report = report or no_report
    report(phase="load")
    require_both_labels(job.table, job.days, ranks)
    folder = CheckpointFolder(job.folder, ranks)
    report(phase="load", limit_s=seconds_allowed(table_bytes(job.table.schema, job.model)))
    learner = Learner(job.model, job.config, job.table.schema, ranks)
    trainer = Trainer(job, learner, folder, report)
    trainer.resume()
    return trainer.fit()


class Trainer:
    """Epochs of steps over the train days, each epoch scored on the valid days."""

    def __init__(self, job: TrainingJob, learner: Learner, folder: CheckpointFolder, report: Report):
        self.job, self.config = job, job.config
        self.learner, self.ranks = learner, learner.ranks
        self.folder, self.report = folder, report
        self.log = TrainingLog()
        self.loader = make_loader(
            job.table, job.days.train, rank=self.ranks.rank, world_size=self.ranks.world_size, config=job.config
        )
        # Opened before the first step: days that cannot be scored are told before hours of training.
        self.valid = evaluation_loader(job.table, job.days.valid, learner) if job.days.valid else None

    def fit(self) -> Checkpoint:
        """Train until finished. Returns the best epoch's checkpoint, the last one's without valid days."""
        while not self.log.is_finished(self.config):
            self._train_epoch()
            self.log.add_epoch(self._evaluate())
            self._save()
        best = self.log.best_epoch(self.config.metric) or self.log.epochs[-1]
        return self.folder.of_step(best.step)

    def resume(self) -> None:
        """Go on from the last checkpoint, bit-identically where the world size and threads are those it was made by.

        Raises CheckpointError where it is of another training.
        """
        last = self.folder.last()
        if last is None:
            return
        _require_same_training(self.job, last)
        if last.plan != self.learner.plan or last.num_threads != torch.get_num_threads():
            logger.warning(
                "%s was made by %d ranks of %d threads under another sharding plan; going on with %d of %d is equal to "
                "float tolerance, not to the bit",
                *(last.path, last.world_size, last.num_threads, self.ranks.world_size, torch.get_num_threads()),
            )
        self.report(phase="load", step=last.step, limit_s=seconds_allowed(last.num_bytes))
        last.verify()
        self.learner.embeddings.load(BlockReader(last))
        self.learner.load_dense_state(load_dense(last))
        self.loader.restore(last.loader)
        self.log = last.log.model_copy(deep=True)

    def _train_epoch(self) -> None:
        every = self.config.checkpoint_every_steps
        steps_per_point = max(1, self.loader.steps_per_epoch // _LOSS_POINTS_PER_EPOCH)
        speed = Speed(self.config.global_batch_size, self.loader.steps_per_epoch, self.loader.step)
        started = time.monotonic()
        for batch in self.loader:
            loss = self.learner.train_step(batch, self.log.step)
            self.log.add_step(loss, steps_per_point, time.monotonic() - started)
            self.report(phase="train", step=self.log.step, loss=loss, epoch=len(self.log.epochs) + 1, **speed.figures())
            # The end of an epoch has a checkpoint of its own.
            if every and self.log.step % every == 0 and self.loader.step > 0:
                self._save()
            started = time.monotonic()

    def _evaluate(self) -> Evaluation | None:
        if self.valid is None:
            return None
        return evaluate_rows(self.learner, self.valid, self.job.days.valid, self.report)

    def _save(self) -> None:
        # A state is at most as large as its weight.
        num_bytes = 2 * table_bytes(self.job.table.schema, self.job.model)
        self.report(phase="checkpoint", step=self.log.step, limit_s=seconds_allowed(num_bytes))
        self.folder.save(self.job, self.learner, self.loader.state(), self.log)


def _require_same_training(job: TrainingJob, last: Checkpoint) -> None:
    """Raise CheckpointError naming the first setting in which a checkpoint's training differs from this one."""
    there, here = ({**_settings(r.config), **_origin(r)} for r in (last, job))
    for name, value in here.items():
        if there[name] != value:
            raise CheckpointError(
                f"{last.path}: trained with {name} = {there[name]!r}, asked for {value!r}; give another folder to "
                f"start a new training"
            )


def _settings(config: Any) -> dict[str, Any]:
    return {k: v for k, v in config.model_dump().items() if k not in _FREE_TO_CHANGE}


def _origin(record: TrainingJob | Checkpoint) -> dict[str, Any]:
    table = record.table
    return {
        "table": (table.uri, table.version),
        "state_id": table.state_id,
        "days": record.days.model_dump(),
        "model": record.model.model_dump(),
    }
