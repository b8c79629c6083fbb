"""Lineage of a run: what each stage read and wrote, and which stage made what another reads."""

from dataclasses import dataclass

from rec.core.records import Artifact, StageRecord
from rec.report.text import duration, moment, shown

STAGES = ("etl", "train", "export", "evaluate", "push")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One artifact. ``made_by`` names the stage of this run that wrote it, empty for what came from outside."""

    name: str
    uri: str
    version: int | None
    sha256: str | None
    made_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    stage: str
    started: str
    took: str
    inputs: list[Node]
    outputs: list[Node]


def ordered(records: dict[str, StageRecord]) -> list[StageRecord]:
    """Return the records in the order of the road; stages it does not name come last, by their start."""
    place = {stage: i for i, stage in enumerate(STAGES)}
    return sorted(records.values(), key=lambda r: (place.get(r.stage, len(STAGES)), r.started_utc))


def lineage(records: dict[str, StageRecord]) -> list[Step]:
    """Return one step per stage; an input is linked to the stage that wrote the same uri at the same version."""
    steps: list[Step] = []
    makers: dict[tuple[str, int | None], str] = {}
    for record in ordered(records):
        inputs = [_node(n, a, makers.get((a.uri, a.version), "")) for n, a in record.inputs.items()]
        outputs = [_node(n, a, "") for n, a in record.outputs.items()]
        steps.append(
            Step(
                stage=shown(record.stage),
                started=moment(record.started_utc),
                took=duration(record.seconds),
                inputs=inputs,
                outputs=outputs,
            )
        )
        makers.update({(a.uri, a.version): shown(record.stage) for a in record.outputs.values()})
    return steps


def _node(name: str, artifact: Artifact, made_by: str) -> Node:
    return Node(
        name=shown(name),
        uri=shown(artifact.uri, 300),
        version=artifact.version,
        sha256=shown(artifact.sha256, 64) if artifact.sha256 else None,
        made_by=made_by,
    )
