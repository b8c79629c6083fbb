"""Run records: each stage writes ``<root>/runs/<run id>/<stage>.json`` once; report and lineage are views of them."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from rec.core.errors import ConfigError
from rec.core.manifest import write_atomic


class Artifact(BaseModel):
    """Something a stage read or wrote: a table at a version, a file, a bundle."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    version: int | None = None
    sha256: str | None = None


class StageRecord(BaseModel):
    """What one stage of one run did. ``figures`` hold numbers, texts and lists that the report draws."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    stage: str
    config: dict[str, Any]
    inputs: dict[str, Artifact] = {}
    outputs: dict[str, Artifact] = {}
    figures: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    started_utc: str
    seconds: float


class Run:
    """One run's folder of records."""

    def __init__(self, root: str | Path, run_id: str | None = None):
        self.run_id = run_id or datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        self.folder = Path(root) / "runs" / self.run_id

    def write(self, record: StageRecord) -> Path:
        """Write a stage's record. A record is written once: a second of the same stage is an error."""
        path = self.folder / f"{record.stage}.json"
        if path.exists():
            raise ConfigError(f"run {self.run_id}: {path} exists; a stage is recorded once, start another run")
        write_atomic(path, record.model_dump_json(indent=1))
        return path

    def read(self) -> dict[str, StageRecord]:
        """Return the records of this run by stage."""
        return {
            p.stem: StageRecord.model_validate(json.loads(p.read_text())) for p in sorted(self.folder.glob("*.json"))
        }


def newest_records(root: str | Path, stage: str) -> Iterator[StageRecord]:
    """Yield the records of a stage under a root, the one written last first."""
    paths = sorted((Path(root) / "runs").glob(f"*/{stage}.json"), key=lambda p: (p.stat().st_mtime_ns, p))
    for path in reversed(paths):
        yield StageRecord.model_validate(json.loads(path.read_text(encoding="utf-8")))


def newest_record(root: str | Path, stage: str, on: Artifact | None = None) -> StageRecord:
    """Return the record of a stage that was written last under a root, with ``on`` of those that read it.

    Raises ConfigError where there is none.
    """
    for record in newest_records(root, stage):
        if on is None or any(artifact.sha256 == on.sha256 for artifact in record.inputs.values()):
            return record
    of = f" on {on.uri}" if on else ""
    raise ConfigError(f"{root}: no {stage} stage was run here{of}; run: rec {stage} RECIPE")


def named_inputs(artifacts: Iterable[Artifact]) -> dict[str, Artifact]:
    """Return local files by what tells them apart: their paths below the folder that all of them lie in."""
    artifacts = list(artifacts)
    shared = os.path.commonpath([os.path.dirname(a.uri) for a in artifacts])
    return {os.path.relpath(a.uri, shared): a for a in artifacts}


class Stopwatch:
    """Start of a stage: wall-clock start and the seconds since."""

    def __init__(self) -> None:
        self.started_utc = datetime.now(UTC).isoformat(timespec="seconds")
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)
