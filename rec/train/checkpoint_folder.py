"""The folder that all ranks write a training's checkpoints into."""

import contextlib
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from rec.core.errors import CheckpointError
from rec.core.manifest import FileDigest, write_atomic
from rec.core.tables import Ranks
from rec.embedding.shards import TableShard
from rec.train.checkpoint import (
    DENSE_FILE,
    MANIFEST,
    Checkpoint,
    StoredBlock,
    complete_checkpoints,
    open_checkpoint,
)
from rec.train.learner import Learner
from rec.train.records import TrainingJob, TrainingLog

NUM_KEPT = 2


class CheckpointFolder:
    """Every method is called by every rank. The last two checkpoints and the best on the valid days are kept."""

    def __init__(self, folder: str, ranks: Ranks):
        self._folder, self._ranks = Path(folder), ranks
        require_shared_folder(self._folder, ranks)

    def last(self) -> Checkpoint | None:
        """Return the complete checkpoint with the most steps, the same on every rank."""
        self._ranks.barrier()
        complete = complete_checkpoints(self._folder)
        return open_checkpoint(complete[-1]) if complete else None

    def of_step(self, step: int) -> Checkpoint:
        return open_checkpoint(self._path(step))

    def save(self, job: TrainingJob, learner: Learner, loader: dict[str, Any], log: TrainingLog) -> Checkpoint:
        """Write this step's checkpoint; it exists when the manifest does. A step's earlier one is replaced."""
        path = self._path(log.step)
        if self._ranks.rank == 0:
            with _writing(path):
                _remove(path)
                path.mkdir(parents=True)
        self._ranks.barrier()
        written = self._write_tensors(path, learner)
        gathered = self._ranks.all_gather(written)
        checkpoint = Checkpoint(
            path=str(path),
            step=log.step,
            table=job.table,
            days=job.days,
            model=job.model,
            config=job.config,
            world_size=self._ranks.world_size,
            num_threads=torch.get_num_threads(),
            loader=loader,
            log=log.model_copy(deep=True),
            plan=learner.plan,
            shards=tuple(StoredBlock(**block) for part in gathered for block in part["blocks"]),
            files={name: FileDigest(**file) for part in gathered for name, file in part["files"].items()},
        )
        if self._ranks.rank == 0:
            with _writing(path / MANIFEST):
                write_atomic(path / MANIFEST, checkpoint.model_dump_json(indent=1))
            self._remove_outdated(job, log)
        self._ranks.barrier()
        return checkpoint

    def _path(self, step: int) -> Path:
        return self._folder / f"step_{step:010d}"

    def _write_tensors(self, path: Path, learner: Learner) -> dict[str, Any]:
        """Write this rank's files; return their digests and the blocks in them as JSON values."""
        shards = learner.embeddings.shards()
        name = f"shard_{self._ranks.rank:05d}.safetensors"
        contents = {name: {_key(s, part): tensor for s in shards for part, tensor in s.parts.items()}}
        if self._ranks.rank == 0:
            contents[DENSE_FILE] = learner.dense_state()
        blocks = [
            StoredBlock(table=s.table, part=part, rows=s.rows, columns=s.columns, file=name, key=_key(s, part))
            for s in shards
            for part in s.parts
        ]
        return {
            "blocks": [b.model_dump() for b in blocks],
            "files": {file: _write_file(path / file, tensors) for file, tensors in contents.items()},
        }

    def _remove_outdated(self, job: TrainingJob, log: TrainingLog) -> None:
        best = log.best_epoch(job.config.metric)
        keep = set(complete_checkpoints(self._folder)[-NUM_KEPT:])
        if best is not None:
            keep.add(self._path(best.step))
        for path in self._folder.glob("step_*"):
            if path not in keep:
                _remove(path)


def require_shared_folder(folder: Path, ranks: Ranks) -> None:
    """Raise CheckpointError, on every rank, naming the host from which a file of another rank cannot be seen."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ranks.all_gather(f".rank_{ranks.rank}_{uuid.uuid4().hex}")
    (folder / names[ranks.rank]).touch()
    ranks.barrier()
    unseen = [r for r, name in enumerate(names) if not (folder / name).exists()]
    places = ranks.all_gather({"host": socket.gethostname(), "path": str(folder.resolve()), "unseen": unseen})
    (folder / names[ranks.rank]).unlink()
    for rank, place in enumerate(places):
        if place["unseen"]:
            other = place["unseen"][0]
            raise CheckpointError(
                f"checkpoint folder {place['path']} on host {place['host']} (rank {rank}) is not the one that rank "
                f"{other} sees on host {places[other]['host']} at {places[other]['path']}; give a folder that all "
                f"ranks share"
            )


def _key(shard: TableShard, part: str) -> str:
    (row, _), (column, _) = shard.rows, shard.columns
    return f"{shard.table}/{part}/{row}/{column}"


def _write_file(path: Path, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    with _writing(path):
        # Copies: FBGEMM keeps several tables in one storage, which safetensors takes for shared memory.
        save_file({key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}, path)
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return FileDigest.of(path).model_dump()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise CheckpointError where the file system, asked by Python or by safetensors, refuses."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: cannot be written: {error}; free space or give another folder") from None


def _remove(path: Path) -> None:
    # The manifest goes first: what is left of an interrupted removal is no checkpoint.
    (path / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
