"""The first screen: whose run this is, and its verdict in a few tiles."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from rec.core.records import StageRecord
from rec.report.ledger import read_ledger
from rec.report.lineage import ordered
from rec.report.text import DASH, count, decimal, duration, moment, number, percent, shown
from rec.report.verdict import contenders, parity_verdict, share_closed


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One figure. ``passed`` is None where nothing is judged."""

    label: str
    value: str
    detail: str
    passed: bool | None = None


def headline(records: dict[str, StageRecord]) -> dict[str, str]:
    """Return the run's name (the recipe's, else that of its root), id and start."""
    first = ordered(records)[0]
    named = [r.config["name"] for r in ordered(records) if isinstance(r.config.get("name"), str)]
    roots = [PurePath(r.config["root"]).name for r in ordered(records) if isinstance(r.config.get("root"), str)]
    return {
        "name": shown([*named, *roots, "run"][0], 120),
        "run_id": shown(first.run_id, 120),
        "started": moment(min(r.started_utc for r in records.values())),
        "stages": ", ".join(shown(r.stage) for r in ordered(records)),
    }


def tiles(records: dict[str, StageRecord]) -> list[Tile]:
    """Return the verdict tiles. One whose stage has not run names the command that makes it."""
    figures = {stage: records[stage].figures if stage in records else {} for stage in ("etl", "evaluate", "push")}
    return [
        _rows(figures["etl"]),
        *_aucs(figures["evaluate"]),
        _parity(figures["push"]),
        _version(figures["push"]),
        Tile(
            label="Total time",
            value=f"{sum(r.seconds for r in records.values()) / 60:,.1f} min",
            detail=" · ".join(_time(r) for r in ordered(records)),
        ),
    ]


def _time(record: StageRecord) -> str:
    """Return a stage's time; beside that of one that had nothing to write, the time of the runs that did the work."""
    took = f"{shown(record.stage)} {duration(record.seconds)}"
    if not record.figures.get("no_op"):
        return took
    seconds = [number(one.get("seconds")) for one in record.figures.get("written_by") or []]
    before = sum(found for found in seconds if found is not None)
    return f"{took} (nothing to write{f'; {duration(before)} in an earlier run' if before else ''})"


def _rows(etl: dict[str, Any]) -> Tile:
    ledger = read_ledger(etl)
    if ledger is None:
        return Tile(label="Rows", value=count(etl.get("num_rows")), detail="no ledger; rec etl RECIPE")
    total = ledger.total
    detail = f"{count(total.lines)} lines, {count(total.bins[-1])} quarantined"
    rows = etl.get("num_rows") if number(etl.get("num_rows")) is not None else total.bins[0] + total.bins[1]
    return Tile(label="Rows", value=count(rows), detail=detail, passed=ledger.proven)


def _aucs(evaluate: dict[str, Any]) -> list[Tile]:
    found = {one.key: one for one in contenders(evaluate)}
    absent = "rec evaluate RECIPE"
    model, logistic, planted = (found.get(key) for key in ("model", "logistic_regression", "planted"))
    share = share_closed(evaluate)
    rows = (evaluate.get("test") or {}).get("num_rows")
    return [
        Tile(
            label="Test AUC",
            value=decimal(model.auc) if model else DASH,
            detail=(model.interval or f"{count(rows)} rows") if model else absent,
        ),
        Tile(
            label="Logistic regression",
            value=decimal(logistic.auc) if logistic else DASH,
            detail=(logistic.interval or "same rows") if logistic else "no baseline" if evaluate else absent,
        ),
        Tile(
            label="Best possible",
            value=decimal(planted.auc) if planted else DASH,
            detail="the planted model" if planted else "unknown for this data" if evaluate else absent,
        ),
        Tile(
            label="Way closed",
            value=percent(share),
            detail=_way(share),
        ),
    ]


def _way(share: float | None) -> str:
    if share is None:
        return "needs both bounds"
    return "regression to best possible" if share >= 0 else "below logistic regression; see Evaluation"


def _parity(push: dict[str, Any]) -> Tile:
    passed, sentence = parity_verdict(push)
    value = {True: "equal", False: "differs", None: DASH}[passed]
    return Tile(label="Parity", value=value, detail=sentence if push else "rec push RECIPE", passed=passed)


def _version(push: dict[str, Any]) -> Tile:
    if not push:
        return Tile(label="Served version", value=DASH, detail="rec push RECIPE")
    return Tile(label="Served version", value=count(push.get("version")), detail=shown(push.get("model")))
