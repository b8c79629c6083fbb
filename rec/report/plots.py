"""Charts of a run: each takes a stage's figures and returns one SVG element, or None where the figures hold no points.

Colours are the page's CSS variables, so that one drawing serves light, dark and print; text is text, in the page's
font. Nothing in a drawing comes from raw data values.
"""

import html
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rec.report.text import count, decimal, number
from rec.report.verdict import contenders, latencies

# Stand-ins that no other part of a drawing uses, replaced by the page's variables in the finished SVG.
INK, MUTED, GRID, ACCENT, SECOND, PAPER = (f"#0{i}0{i}0{i}" for i in range(1, 7))
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line", ACCENT: "--accent", SECOND: "--second", PAPER: "--paper"}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": MUTED,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
}
MAX_POINTS = 300
WIDTH_IN, HEIGHT_IN = 4.5, 2.9


@contextmanager
def _axes(height_in: float = HEIGHT_IN) -> Iterator[tuple[Figure, Axes]]:
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        yield figure, figure.subplots()


def _svg(figure: Figure, name: str, description: str) -> str:
    """Return the drawing as an element to put into a page: no prolog, no metadata, no global style, its own ids."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    body = text[text.index("<svg") :]
    head, body = body.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box, head
    used = set(re.findall(r"(?:url\(|href=\")#([\w-]+)", body))
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", body)
    body = re.sub(r"(url\(|href=\")#", rf"\1#{name}-", body)
    body = re.sub(r"font: (?:\w+ )*?([\d.]+)px [^;\"]+", r"font-size: \1px", body)
    for stand_in, variable in _VARIABLES.items():
        body = body.replace(stand_in, f"var({variable})")
    body = re.sub(r"\n\s*", "\n", body)
    return f'<svg {view_box[0]} role="img" aria-label="{html.escape(description)}" class="plot">{body.strip()}'


def points(rows: Any, width: int) -> list[tuple[float, ...]]:
    """Return the rows of ``width`` finite numbers."""
    found = []
    for row in rows or []:
        values = [number(value) for value in row[:width]] if isinstance(row, list | tuple) else []
        if len(values) == width and None not in values:
            found.append(tuple(float(v) for v in values if v is not None))
    return found


def _thinned(curve: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return at most MAX_POINTS points, each the mean of its neighbours."""
    size = -(-len(curve) // MAX_POINTS)
    groups = [curve[i : i + size] for i in range(0, len(curve), size)]
    return [tuple(sum(axis) / len(group) for axis in zip(*group)) for group in groups]


def loss_curve(figures: dict[str, Any]) -> str | None:
    """Training loss by step; the run that chose the number of epochs lies behind it where there was one."""
    curve = points(figures.get("loss_curve"), 2)
    choice = points((figures.get("choice") or {}).get("loss_curve"), 2)
    if not curve:
        return None
    with _axes() as (figure, axes):
        if choice:
            axes.plot(*zip(*_thinned(choice)), color=MUTED, linewidth=1.1, label="choosing the epochs")
        mark = "o" if len(curve) == 1 else None
        axes.plot(*zip(*_thinned(curve)), color=ACCENT, marker=mark, label="final training" if choice else None)
        axes.set(xlabel="step", ylabel="log loss (nats per row)")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: count(x)))
        if choice:
            axes.legend()
        described = f"Training loss over {count(curve[-1][0])} steps, from {curve[0][1]:.4f} to {curve[-1][1]:.4f}"
        return _svg(figure, "loss", described)


def valid_epochs(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the epochs that were judged on the valid days: of the run that chose their number, else its own."""
    source = figures.get("choice") or figures
    epochs = [e for e in source.get("epochs") or [] if number(e.get("epoch")) is not None]
    return [e for e in epochs if number((e.get("valid") or {}).get("auc")) is not None]


def best_epoch(figures: dict[str, Any]) -> int | None:
    """Return the best epoch of the run that ``valid_epochs`` shows."""
    found = (figures.get("choice") or figures).get("best_epoch")
    return found if isinstance(found, int) else None


def valid_auc(figures: dict[str, Any]) -> str | None:
    """Valid AUC after each epoch, the best one marked."""
    epochs = valid_epochs(figures)
    if not epochs:
        return None
    curve = [(e["epoch"], e["valid"]["auc"]) for e in epochs]
    best = [(e, auc) for e, auc in curve if e == best_epoch(figures)]
    with _axes() as (figure, axes):
        axes.plot(*zip(*curve), color=ACCENT, marker="o", markersize=4.5)
        for epoch, auc in best:
            axes.plot([epoch], [auc], color=SECOND, marker="o", markersize=8)
            side = "left" if epoch > curve[len(curve) // 2][0] else "right"
            axes.annotate(
                f"best {auc:.4f}",
                (epoch, auc),
                xytext=(-9 if side == "left" else 9, 9),
                textcoords="offset points",
                ha="right" if side == "left" else "left",
                color=INK,
            )
        axes.set(xlabel="epoch", ylabel="valid AUC")
        axes.margins(x=0.08, y=0.22)
        if len(curve) == 1:
            [(epoch, auc)] = curve
            axes.set(xlim=(epoch - 1, epoch + 1), ylim=(auc - 0.01, auc + 0.01))
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.3f}"))
        described = "Valid AUC by epoch: " + ", ".join(f"{e}: {auc:.4f}" for e, auc in curve)
        return _svg(figure, "valid", described)


def auc_comparison(figures: dict[str, Any]) -> str | None:
    """The model's test AUC with its interval between logistic regression and the best possible."""
    found = contenders(figures)
    if not found:
        return None
    with _axes(0.75 + 0.36 * len(found)) as (figure, axes):
        for row, one in enumerate(found):
            colour = ACCENT if one.key == "model" else MUTED
            if one.bounds:
                axes.plot(one.bounds, [row, row], color=colour, linewidth=3, alpha=0.35, solid_capstyle="round")
            axes.plot([one.auc], [row], color=colour, marker="o", markersize=7)
            axes.annotate(f"{one.auc:.4f}", (one.auc, row), (0, 7), textcoords="offset points", ha="center", color=INK)
        axes.set_yticks(range(len(found)), [one.label for one in found])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.5, len(found) - 0.3)
        axes.margins(x=0.14)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel("AUC on the test days")
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", visible=False)
        described = "Test AUC: " + ", ".join(f"{one.label} {one.auc:.4f}" for one in found)
        return _svg(figure, "auc", described)


def _square(axes: Axes, limit: float = 1.0) -> None:
    axes.plot([0, limit], [0, limit], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlim=(0, limit), ylim=(0, limit))


def roc(figures: dict[str, Any]) -> str | None:
    """True against false positive rate on the test days."""
    curve = points(figures.get("roc"), 2)
    if not curve:
        return None
    with _axes(3.3) as (figure, axes):
        _square(axes)
        false_positive, true_positive = zip(*curve)
        axes.plot(false_positive, true_positive, color=ACCENT)
        axes.fill_between(false_positive, true_positive, color=ACCENT, alpha=0.08, linewidth=0)
        axes.set(xlabel="false positive rate", ylabel="true positive rate")
        auc = decimal((figures.get("test") or {}).get("auc"))
        return _svg(figure, "roc", f"ROC curve on the test days, area {auc}")


def calibration(figures: dict[str, Any]) -> str | None:
    """Observed against predicted click rate per bin, whiskers of two standard errors."""
    bins = [(p, o, n) for p, o, n in points(figures.get("calibration"), 3) if n > 0]
    if not bins:
        return None
    predicted, observed, rows = zip(*bins)
    errors = [2 * (max(o * (1 - o), 0) / n) ** 0.5 for o, n in zip(observed, rows)]
    below = [min(error, o) for error, o in zip(errors, observed)]
    above = [min(error, 1 - o) for error, o in zip(errors, observed)]
    with _axes(3.3) as (figure, axes):
        tops = [o + error for o, error in zip(observed, above)]
        _square(axes, min(1.0, 1.04 * max(*predicted, *tops, 1e-6)))
        axes.errorbar(predicted, observed, yerr=[below, above], color=ACCENT, fmt="o", markersize=4.5, elinewidth=1.1)
        axes.set(xlabel="mean predicted probability", ylabel="observed click rate")
        worst = max(abs(p - o) for p, o, _ in bins)
        return _svg(figure, "calibration", f"Calibration in {len(bins)} bins; largest gap {worst:.4f}")


def latency(figures: dict[str, Any]) -> str | None:
    """Served latency by batch size: median and 99th percentile, both axes logarithmic."""
    found = latencies(figures)
    if not found:
        return None
    sizes, p50, p99 = zip(*[(one.size, one.p50, one.p99) for one in found])
    with _axes() as (figure, axes):
        axes.plot(sizes, p99, color=SECOND, marker="o", markersize=4.5, label="p99")
        axes.plot(sizes, p50, color=ACCENT, marker="o", markersize=4.5, label="p50")
        alone = [(one.size, one.in_process_p50) for one in found if one.in_process_p50]
        if alone:
            axes.plot(*zip(*alone), color=MUTED, linestyle="--", linewidth=1.1, label="p50 in process")
        axes.set(xscale="log", yscale="log", xlabel="rows per request", ylabel="milliseconds")
        axes.set_xticks(sizes, [count(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.margins(0.1)
        axes.legend()
        described = ", ".join(f"batch {one.size}: p50 {one.p50:.2f} ms, p99 {one.p99:.2f} ms" for one in found)
        return _svg(figure, "latency", f"Served latency: {described}")


CHARTS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "train.loss_curve": loss_curve,
    "train.valid_auc": valid_auc,
    "evaluate.auc_comparison": auc_comparison,
    "evaluate.roc": roc,
    "evaluate.calibration": calibration,
    "push.latency": latency,
}
