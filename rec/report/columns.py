"""Column cards: what a reader compares of each feature, and the histogram of a dense one."""

import html
from dataclasses import dataclass, field
from typing import Any

from rec.report.plots import points
from rec.report.text import compact, count, number, percent, shown

MAX_BARS = 40
MAX_VALUES = 10
_WIDTH, _HEIGHT = 200, 64


@dataclass(frozen=True, kw_only=True)
class TopValue:
    value: str
    full: str
    count: str
    bar: float  # width in percent of the card, 100 for the most frequent


@dataclass(frozen=True, kw_only=True)
class Card:
    """One column. ``facts`` are (name, value, note); ``missing`` and ``unseen`` are shares of the rows, to sort by."""

    name: str
    role: str
    missing: float
    unseen: float
    facts: list[tuple[str, str, str]]
    top_values: list[TopValue] = field(default_factory=list)
    histogram: str | None = None


def cards(figures: dict[str, Any]) -> list[Card]:
    """Return one card per column of an ETL stage, in the order of the schema."""
    return [_sparse(column) if column.get("role") == "sparse" else _dense(column) for column in figures["columns"]]


def _sparse(column: dict[str, Any]) -> Card:
    rows = column.get("rows")
    facts = [
        _part("missing", column),
        _part("unseen", column),
        ("vocabulary", count(column.get("vocabulary")), ""),
        ("embeddings", count(column.get("num_embeddings")), ""),
    ]
    return Card(
        name=shown(column.get("name")),
        role="sparse",
        missing=_share(column.get("missing"), rows),
        unseen=_share(column.get("unseen"), rows),
        facts=facts,
        top_values=_top_values(column.get("top_values") or []),
    )


def _top_values(pairs: list[Any]) -> list[TopValue]:
    found = [(value, float(number(times) or 0)) for value, times in pairs[:MAX_VALUES]]
    most = max((times for _, times in found), default=0) or 1
    return [
        TopValue(
            value=shown(value, 28),
            full=shown(value, 200),
            count=count(times),
            bar=round(100 * times / most, 1),
        )
        for value, times in found
    ]


def _dense(column: dict[str, Any]) -> Card:
    rows = column.get("rows")
    facts = [
        _part("missing", column),
        ("min", compact(column.get("min")), ""),
        ("mean", compact(column.get("mean")), ""),
        ("max", compact(column.get("max")), ""),
    ]
    return Card(
        name=shown(column.get("name")),
        role=shown(column.get("role")),
        missing=_share(column.get("missing"), rows),
        unseen=0.0,
        facts=facts,
        histogram=histogram(column.get("histogram"), shown(column.get("name"))),
    )


def _part(name: str, column: dict[str, Any]) -> tuple[str, str, str]:
    """Return how many of the rows, as a share and a count; a figure that is not there has no count."""
    found = number(column.get(name))
    return name, percent(found, column.get("rows")), "" if found is None else count(found)


def _share(part: Any, whole: Any) -> float:
    above, below = number(part), number(whole)
    return above / below if above is not None and below else 0.0


def histogram(rows: Any, name: str) -> str | None:
    """Draw [lo, hi, count] buckets where they lie, with an area that follows the count; empty ones may be left out.

    Neighbours are merged where there are more than MAX_BARS. A bucket of no width (one value) gets the whole drawing.
    """
    bars = _merged(sorted(points(rows, 3)))
    if not bars:
        return None
    low, high = bars[0][0], bars[-1][1]
    scale = _WIDTH / (high - low) if high > low else 0.0
    density = [times / (right - left) if right > left else times for left, right, times in bars]
    most = max(density) or 1
    drawn = []
    for (left, right, times), dense in zip(bars, density):
        x, width = (left - low) * scale, (right - left) * scale if scale else _WIDTH
        # A bucket that holds something stays visible beside one that holds a million times more.
        height = max(_HEIGHT * dense / most, 1.0) if times else 0
        title = html.escape(f"{compact(left)} to {compact(right)}: {count(times)}")
        drawn.append(
            f'<rect x="{x:.2f}" y="{_HEIGHT - height:.2f}" width="{max(width - 1, 0.7):.2f}" height="{height:.2f}">'
            f"<title>{title}</title></rect>"
        )
    first, last = html.escape(compact(low)), html.escape(compact(high))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" class="histogram" '
        f'aria-label="Histogram of {html.escape(name)}, {first} to {last}">{"".join(drawn)}</svg>'
        f'<div class="ends"><span>{first}</span><span>{last}</span></div>'
    )


def _merged(buckets: list[tuple[float, ...]]) -> list[tuple[float, float, float]]:
    size = max(-(-len(buckets) // MAX_BARS), 1)
    groups = [buckets[i : i + size] for i in range(0, len(buckets), size)]
    return [(group[0][0], group[-1][1], sum(times for *_, times in group)) for group in groups]
