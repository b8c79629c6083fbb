"""The HTML report of a run: one file that needs nothing else, drawn from the records alone."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rec.core.errors import ConfigError
from rec.core.manifest import write_atomic
from rec.core.records import Run, StageRecord
from rec.report import text
from rec.report.columns import cards
from rec.report.headline import headline, tiles
from rec.report.ledger import BINS, fold, read_ledger
from rec.report.lineage import lineage, ordered
from rec.report.plots import CHARTS, best_epoch, valid_epochs
from rec.report.verdict import (
    below_baseline_sentence,
    latencies,
    no_op_sentence,
    parity_checks,
    parity_verdict,
    training_end_sentence,
)

TEMPLATES = Path(__file__).parent / "templates"
MAX_LEDGER_LINES = 500
FILTERS = {
    name: getattr(text, name)
    for name in ("shown", "count", "decimal", "compact", "size", "percent", "duration", "interval", "scientific")
}


def write_report(run_folder: Path, out: Path) -> Path:
    """Draw the records of ``<root>/runs/<run id>`` into one HTML file. Raises ConfigError where there are none."""
    records = read_records(Path(run_folder))
    out = Path(out)
    if out.is_dir():
        raise ConfigError(f"report {out}: is a folder; name a file such as {out / 'report.html'}")
    write_atomic(out, render(records))
    return out


def read_records(run_folder: Path) -> dict[str, StageRecord]:
    run_folder = run_folder.absolute()
    if not run_folder.is_dir() or run_folder.parent.name != "runs":
        raise ConfigError(f"run folder {run_folder}: no such run; name a folder <root>/runs/<run id>")
    try:
        records = Run(run_folder.parent.parent, run_folder.name).read()
    except (ValueError, OSError) as error:
        raise ConfigError(f"run folder {run_folder}: a record cannot be read: {' '.join(str(error).split())}") from None
    if not records:
        raise ConfigError(f"run folder {run_folder}: holds no record; rec etl RECIPE makes the first")
    return {stage: r.model_copy(update={"figures": _without_nulls(r.figures)}) for stage, r in records.items()}


def _without_nulls(value: Any) -> Any:
    """Drop null members: JSON has null where a figure was NaN, and a figure that is null is drawn as one not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value


def render(records: dict[str, StageRecord]) -> str:
    """Return the page. The same records give the same bytes."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    script = environment.get_template("columns.js.j2").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        style=Markup(style),
        script=Markup(script),
        script_digest=digest,
        headline=headline(records),
        tiles=tiles(records),
        figures={stage: record.figures for stage, record in records.items()},
        charts={name: _chart(name, records) for name in CHARTS},
        ledger=_ledger(records),
        no_op=no_op_sentence(_figures(records, "etl")) if _figures(records, "etl").get("no_op") else None,
        cards=_cards(records),
        train=_train(records),
        below_baseline=below_baseline_sentence(_figures(records, "evaluate")),
        push=_push(records),
        lineage=lineage(records),
        warnings=[(text.shown(r.stage), text.shown(w, 2000)) for r in ordered(records) for w in r.warnings],
        configs=_configs(records),
    )


def _chart(name: str, records: dict[str, StageRecord]) -> Markup | None:
    record = records.get(name.partition(".")[0])
    drawn = CHARTS[name](record.figures) if record else None
    return Markup(drawn) if drawn else None


def _figures(records: dict[str, StageRecord], stage: str) -> dict[str, Any]:
    return records[stage].figures if stage in records else {}


def _ledger(records: dict[str, StageRecord]) -> dict[str, Any] | None:
    ledger = read_ledger(_figures(records, "etl"))
    if ledger is None:
        return None
    return {
        "bins": BINS,
        "lines": fold(ledger.lines, MAX_LEDGER_LINES),
        "by_day": ledger.by_day,
        "total": ledger.total,
        "proven": ledger.proven,
        "proof": ledger.proof,
    }


def _cards(records: dict[str, StageRecord]) -> list[dict[str, Any]]:
    figures = _figures(records, "etl")
    if not figures.get("columns"):
        return []
    return [{**vars(card), "histogram": Markup(card.histogram) if card.histogram else None} for card in cards(figures)]


def _train(records: dict[str, StageRecord]) -> dict[str, Any]:
    figures = _figures(records, "train")
    plan = figures.get("plan") or []
    ranks = sorted({rank for table in plan for rank in table.get("ranks") or []})
    by_rank = [
        (rank, sum(text.number(t.get("megabytes")) or 0 for t in plan if rank in t.get("ranks", []))) for rank in ranks
    ]
    return {
        "epochs": valid_epochs(figures),
        "best_epoch": best_epoch(figures),
        "end": training_end_sentence(figures),
        "plan": plan,
        "by_rank": by_rank,
    }


def _push(records: dict[str, StageRecord]) -> dict[str, Any]:
    figures = _figures(records, "push")
    passed, sentence = parity_verdict(figures)
    rows = (figures.get("parity") or {}).get("rows")
    return {
        "passed": passed,
        "sentence": sentence,
        "checks": parity_checks(figures),
        "latencies": latencies(figures),
        "rows": rows,
    }


def _configs(records: dict[str, StageRecord]) -> list[tuple[str, str]]:
    """Return (stages, YAML) once per distinct config."""
    stages: dict[str, list[str]] = {}
    configs: dict[str, dict[str, Any]] = {}
    for record in ordered(records):
        key = json.dumps(record.config, sort_keys=True)
        stages.setdefault(key, []).append(text.shown(record.stage))
        configs[key] = record.config
    return [
        (", ".join(names), text.shown_lines(yaml.safe_dump(configs[key], sort_keys=False, allow_unicode=True)))
        for key, names in stages.items()
    ]
