"""What RAPIDS says of a plan: which operators would run on the GPU.

Marks of its explain output: ``*`` runs on the GPU, ``!`` cannot, ``@`` could but the plan around it forbids,
``$`` cost-based, ``#`` removed, ``^`` by the CPU bridge.
"""

import re
from dataclasses import dataclass
from itertools import takewhile

from rec.core.errors import TableError

_LINE = re.compile(r"^(?P<indent> *)(?P<mark>[*!@#$^?])(?P<kind>[A-Za-z]*) ?<(?P<operator>[^>]+)> (?P<text>.*)$")
_START = re.compile(r"WARN GpuOverrides: *$")
OFF_GPU = frozenset("!@$^")
# Leaves that read data where it lies. Anything else was collected to the driver or built there.
SCANS = frozenset({"FileSourceScanExec", "BatchScanExec"})
# RAPIDS marks these as its own, but the rows leave for a Python process.
_PYTHON = re.compile(r"Python|Pandas|InArrow")
# Columns and classes of Delta's own reads of its log: queries of the table format, not of the job.
_DELTA_LOG = re.compile(
    r"\b(commitInfo#\d+|partitionValues#\d+|spark\.sql\.delta\.(actions|stats|commands)\b|SnapshotState|add#\d+)"
)


@dataclass(frozen=True)
class PlanLine:
    """One line of an explained plan; ``kind`` is Exec, Expression, Command, Output, Scan, Partitioning or empty."""

    depth: int
    mark: str
    kind: str
    operator: str
    text: str

    @property
    def is_exec(self) -> bool:
        return self.operator.endswith("Exec")


@dataclass(frozen=True)
class Fallback:
    """An operator that would not run on the GPU, with RAPIDS' reason."""

    operator: str
    reason: str


Plan = tuple[PlanLine, ...]


def parse_plan(text: str) -> Plan:
    """Return the lines of one explained plan. Raises TableError where there is none: nothing was explained."""
    matches = [m for m in map(_LINE.match, text.split("\n")) if m]
    if not matches:
        raise TableError(f"no plan line in the explain output {text[:200]!r}; check that the RAPIDS jar is loaded")
    return tuple(PlanLine(len(m["indent"]) // 2, m["mark"], m["kind"], m["operator"], m["text"]) for m in matches)


def split_log(log: str) -> list[Plan]:
    """Return the plans that a session in explain-only mode logged, in order. A plan ends at an empty line."""
    plans: list[Plan] = []
    # Not splitlines: a plan shows literals as they are, a carriage return among them.
    lines = log.split("\n")
    for start in (i for i, line in enumerate(lines) if _START.search(line)):
        block = list(takewhile(str.strip, lines[start + 1 :]))
        if block:
            plans.append(parse_plan("\n".join(block)))
    return plans


def reads_delta_log(plan: Plan) -> bool:
    """Whether the plan is one of Delta's own reads of its log."""
    return any(_DELTA_LOG.search(line.text) for line in plan)


def fallbacks(plan: Plan) -> list[Fallback]:
    """Return what stays off the GPU: operators and expressions, and leaves that are no scan."""
    found = [Fallback(line.operator, _reason(line)) for line in plan if line.mark in OFF_GPU]
    found += [
        Fallback(line.operator, "a Python step") for line in plan if line.is_exec and _PYTHON.search(line.operator)
    ]
    return found + [
        Fallback(leaf.operator, "the leaf is no scan of files or of a table") for leaf in _leaves(plan) if not found
    ]


def _reason(line: PlanLine) -> str:
    return line.text.partition(" because ")[2] or line.text


def _leaves(plan: Plan) -> list[PlanLine]:
    """Leaf operators that are no scan; a command that carries its query elsewhere has none."""
    execs = [line for line in plan if line.is_exec]
    leaves = [
        line
        for line, following in zip(execs, [*execs[1:], None], strict=True)
        if following is None or following.depth <= line.depth
    ]
    return [x for x in leaves if x.operator not in SCANS and not x.operator.endswith(("CommandExec", "QueryStageExec"))]
