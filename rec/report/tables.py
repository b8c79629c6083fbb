"""The same figures on a terminal. Raw values go through ``shown`` and are never parsed as rich markup."""

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rec.report.folded import FoldedPath
from rec.report.ledger import BINS, MAX_PATH_CHARS, LedgerLine, common_folder, fold, read_ledger
from rec.report.text import DASH, count, decimal, number, shown
from rec.report.verdict import (
    below_baseline_sentence,
    contenders,
    latencies,
    no_op_sentence,
    parity_checks,
    parity_verdict,
    training_end_sentence,
    way_closed_sentence,
)

MAX_LEDGER_LINES = 40


def _table(title: str, left: list[str], right: list[str]) -> Table:
    table = Table(
        title=title or None, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False
    )
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _verdict(passed: bool | None, sentence: str) -> Text:
    mark, style = {True: ("✓ ", "green"), False: ("✗ ", "bold red"), None: ("", "dim")}[passed]
    return Text(mark + sentence, style=style)


def ledger_table(figures: dict[str, Any]) -> RenderableType:
    """Render an ETL stage's ledger: a row per file and day, the totals, the proof of the sums, the reasons."""
    ledger = read_ledger(figures)
    if ledger is None:
        return Text("no ledger recorded", style="dim")
    common = common_folder(ledger.lines)
    table = _table("", ["file"], ["day", "lines", *BINS, "unlabelled"])
    for line in fold(ledger.lines, MAX_LEDGER_LINES):
        table.add_row(*_cells(line, common))
    table.add_section()
    table.add_row(*_cells(ledger.total, common), style="bold")
    folder = _from_here(common)
    title = f"Ledger of {shown(folder, MAX_PATH_CHARS)}" if folder else "Ledger"
    reasons = ", ".join(f"{shown(reason)} × {count(found)}" for reason, found in ledger.total.reasons.items())
    parts: list[RenderableType] = [FoldedPath(title, "bold"), table, _verdict(ledger.proven, ledger.proof)]
    if reasons:
        parts.append(Text(f"  quarantined: {reasons}", style="dim"))
    if figures.get("no_op"):
        parts.append(Text(f"  {no_op_sentence(figures)}", style="dim"))
    return Group(*parts)


def _cells(line: LedgerLine, common: str) -> list[RenderableType]:
    day = DASH if line.day is None else str(line.day)
    numbers = [day, count(line.lines), *(count(found) for found in line.bins), count(line.unlabelled)]
    file = shown(_from_here(line.file.removeprefix(common)), MAX_PATH_CHARS)
    return [FoldedPath(file), *map(Text, numbers)]


def _from_here(path: str) -> str:
    """Return a path below the working directory without it."""
    return path.removeprefix(f"{Path.cwd()}/")


def training_line(figures: dict[str, Any]) -> RenderableType:
    """Render a train stage's size and speed, and what ended it."""
    ranks = number(figures.get("world_size"))
    line = (
        f"Training: {count(figures.get('num_steps'))} steps on {count(ranks)} rank{'' if ranks == 1 else 's'}, "
        f"{count(figures.get('rows_per_second'))} rows/s, {count(figures.get('num_parameters'))} parameters"
    )
    return Text("\n".join(filter(None, [line, training_end_sentence(figures)])))


def evaluation_table(figures: dict[str, Any]) -> RenderableType:
    """Render an evaluate stage's figures per split, and the test AUC beside the baselines."""
    table = _table("Evaluation", [""], ["days", "rows", "AUC", "log loss", "norm. entropy", "calibration"])
    for split in ("valid", "test"):
        found = figures.get(split)
        if found:
            days = ", ".join(str(day) for day in found.get("days") or []) or DASH
            metrics = (found.get(name) for name in ("auc", "log_loss", "normalized_entropy", "calibration"))
            table.add_row(split, days, count(found.get("num_rows")), *map(decimal, metrics))
    beside = _table("Test AUC", [""], ["AUC", "interval"])
    for one in contenders(figures):
        style = "bold" if one.key == "model" else None
        beside.add_row(one.label, decimal(one.auc), one.interval or DASH, style=style)
    sentences = [way_closed_sentence(figures), below_baseline_sentence(figures)]
    return Group(table, Text(), beside, *[Text(sentence) for sentence in sentences if sentence])


def push_table(figures: dict[str, Any]) -> RenderableType:
    """Render a push stage's parity checks, verdict and latencies."""
    parity = _table("Served beside offline", [""], ["value", "wanted", ""])
    for check in parity_checks(figures):
        parity.add_row(Text(check.label), check.value, check.wanted, _verdict(check.passed, ""))
    headings = ["rows", "p50 ms", "p99 ms", "rows/s", "in process p50 ms", "ratio", "wanted"]
    latency = _table("Latency of a request", [], [*headings, ""])
    for one in latencies(figures):
        times = decimal(one.p50, 2), decimal(one.p99, 2), one.rows_per_second, decimal(one.in_process_p50, 2)
        mark = _verdict(one.passed, "")
        latency.add_row(count(one.size), *times, decimal(one.ratio, 2), one.budget, mark)
    served = f"serving {shown(figures.get('model'))} version {count(figures.get('version'))}"
    parts: list[RenderableType] = [Text(served, style="bold"), parity, _verdict(*parity_verdict(figures))]
    if latency.row_count:
        parts.extend([Text(), latency])
    return Group(*parts)
