"""Checkpoints: one folder a step, tensors in safetensors files, and a manifest that is written last.

=======================  ============================================================================
manifest.json            this record: without it the folder is no checkpoint
dense.safetensors        ``weight/NAME`` and optimizer states ``STATE/NAME`` of the dense weights
shard_RANK.safetensors   blocks of embedding tables and of their optimizer states, as ``shards`` lists
=======================  ============================================================================
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from rec.core.errors import CheckpointError
from rec.core.manifest import FileDigest, sha256_file
from rec.core.tables import Days, FeatureTable
from rec.embedding.planner import ShardingPlan
from rec.embedding.shards import Range
from rec.model.base import Model
from rec.model.config import ModelConfig
from rec.model.registry import build_model
from rec.train.config import TrainConfig
from rec.train.records import TrainingLog

MANIFEST = "manifest.json"
DENSE_FILE = "dense.safetensors"


class StoredBlock(BaseModel):
    """Rows [a, b) and columns [c, d) of one table's weight or optimizer state, under ``key`` in ``file``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    part: str
    rows: Range
    columns: Range
    file: str
    key: str


class Checkpoint(BaseModel):
    """A complete checkpoint, as its manifest tells. ``log`` holds losses and valid figures up to its step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(exclude=True)
    step: int
    table: FeatureTable
    days: Days
    model: ModelConfig
    config: TrainConfig
    world_size: int
    num_threads: int
    loader: dict[str, Any]
    log: TrainingLog
    plan: ShardingPlan
    shards: tuple[StoredBlock, ...]
    files: dict[str, FileDigest]

    @property
    def num_epochs(self) -> int:
        """Whole epochs trained."""
        return len(self.log.epochs)

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files.values())

    @property
    def sha256(self) -> str:
        """Digest of the manifest, and through it of every file: the checkpoint's identity."""
        return sha256_file(Path(self.path) / MANIFEST)

    def verify(self) -> None:
        """Raise CheckpointError naming the first file that is not the one that was written."""
        for name, stored in self.files.items():
            path = Path(self.path) / name
            if not path.is_file():
                raise CheckpointError(f"{path}: no such file, but the manifest lists it; use another checkpoint")
            if (found := sha256_file(path)) != stored.sha256:
                raise CheckpointError(
                    f"{path}: sha256 is {found}, the manifest says {stored.sha256}; the file is damaged, use another "
                    f"checkpoint"
                )


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint's manifest. Raises CheckpointError where there is none or it cannot be read."""
    manifest = Path(path) / MANIFEST
    if not manifest.is_file():
        raise CheckpointError(f"{manifest}: no such file, so {path} is no complete checkpoint; name another folder")
    try:
        return Checkpoint.model_validate_json(_with_path(manifest))
    except (ValidationError, ValueError) as error:
        raise CheckpointError(f"{manifest}: not a manifest: {' '.join(str(error).split())[:300]}") from None


def complete_checkpoints(folder: str | Path) -> list[Path]:
    """Return the folders of complete checkpoints below ``folder`` by step."""
    return sorted(p.parent for p in Path(folder).glob(f"step_*/{MANIFEST}"))


def whole_log(checkpoint: Checkpoint) -> TrainingLog:
    """Return the log of the checkpoint's training to its end: the last one in its folder tells of later epochs too."""
    return open_checkpoint(complete_checkpoints(Path(checkpoint.path).parent)[-1]).log


def load_model(checkpoint: Checkpoint) -> tuple[Model, dict[str, torch.Tensor]]:
    """Return the dense part with its weights and every table whole, float32 [num_embeddings, embedding_dim], on the
    CPU. Raises CheckpointError where a file is not the one that was written."""
    checkpoint.verify()
    model = build_model(checkpoint.model, checkpoint.table.schema, checkpoint.config.seed)
    weights = {k.partition("/")[2]: v for k, v in load_dense(checkpoint).items() if k.startswith("weight/")}
    model.load_state_dict(weights)
    blocks = BlockReader(checkpoint)
    tables = {
        p.table.name: blocks(p.table.name, "weight", (0, p.table.num_embeddings), (0, p.table.embedding_dim))
        for p in checkpoint.plan.placements
    }
    return model.eval(), tables


def load_dense(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return load_file(Path(checkpoint.path) / DENSE_FILE)


class BlockReader:
    """Reads any block of a table from the stored blocks that overlap it, and only their rows of it."""

    def __init__(self, checkpoint: Checkpoint):
        self._folder = Path(checkpoint.path)
        self._stored: dict[tuple[str, str], list[StoredBlock]] = defaultdict(list)
        for block in checkpoint.shards:
            self._stored[block.table, block.part].append(block)

    def __call__(self, table: str, part: str, rows: Range, columns: Range) -> torch.Tensor:
        """Return [rows, columns], or [rows] of a state with one number a row. Raises CheckpointError for a gap."""
        filled = 0
        out: torch.Tensor | None = None
        for block in self._stored[table, part]:
            inner_rows, inner_columns = _overlap(block.rows, rows), _overlap(block.columns, columns)
            if inner_rows[0] >= inner_rows[1] or inner_columns[0] >= inner_columns[1]:
                continue
            stored = self._read(block, inner_rows)
            if out is None:
                size = [b - a for a, b in (rows, columns)][: stored.dim()]
                out = torch.empty(size, dtype=stored.dtype)
            target = out[inner_rows[0] - rows[0] : inner_rows[1] - rows[0]]
            if stored.dim() > 1:
                first = block.columns[0]
                stored = stored[:, inner_columns[0] - first : inner_columns[1] - first]
                target = target[:, inner_columns[0] - columns[0] : inner_columns[1] - columns[0]]
            target.copy_(stored)
            filled += stored.numel()
        if out is None or filled != out.numel():
            wanted = "nothing" if out is None else f"{filled} of {out.numel()} numbers"
            raise CheckpointError(
                f"{self._folder}: table {table!r} {part} rows {list(rows)}, columns {list(columns)}: the shards hold "
                f"{wanted}; it was written for other tables, start a new training"
            )
        return out

    def _read(self, block: StoredBlock, rows: Range) -> torch.Tensor:
        path = self._folder / block.file
        try:
            with safe_open(path, "pt") as file:
                return file.get_slice(block.key)[rows[0] - block.rows[0] : rows[1] - block.rows[0]]
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path}: cannot be read: {error}; use another checkpoint") from None


def _overlap(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])


def _with_path(manifest: Path) -> str:
    return json.dumps({**json.loads(manifest.read_text(encoding="utf-8")), "path": str(manifest.parent)})
