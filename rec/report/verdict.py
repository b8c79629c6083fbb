"""What a run's figures say: how far the model came between two known AUCs, and whether served equals offline."""

from dataclasses import dataclass
from typing import Any

from rec.report.text import DASH, count, duration, interval, number, percent, scientific, shown

LOGIT_TOLERANCE = 1e-5
AUC_TOLERANCE = 1e-6
# Served p50 over in-process p50, by rows per request.
LATENCY_BUDGETS = {64: 1.5, 2048: 1.2}


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One AUC on the test days; ``key`` is the model's own or a baseline's name in the figures."""

    key: str
    label: str
    auc: float
    bounds: tuple[float, float] | None = None

    @property
    def interval(self) -> str | None:
        return interval(self.bounds)


def contenders(figures: dict[str, Any]) -> list[Contender]:
    """Return the AUCs of an evaluate stage: logistic regression, the trained model, the best possible; absent: left."""
    baselines = figures.get("baselines") or {}
    found = [
        ("logistic_regression", "Logistic regression", baselines.get("logistic_regression") or {}),
        ("model", "Trained model", {**(figures.get("test") or {}), "interval": figures.get("interval")}),
        ("planted", "Best possible", baselines.get("planted") or {}),
    ]
    return [
        Contender(key=key, label=label, auc=float(values["auc"]), bounds=_bounds(values.get("interval")))
        for key, label, values in found
        if number(values.get("auc")) is not None
    ]


def _bounds(pair: Any) -> tuple[float, float] | None:
    return (float(pair[0]), float(pair[1])) if interval(pair) else None


def share_closed(figures: dict[str, Any]) -> float | None:
    """Return how far the model came from logistic regression (0) to the best possible (1)."""
    auc = {c.key: c.auc for c in contenders(figures)}
    if len(auc) < 3 or auc["planted"] <= auc["logistic_regression"]:
        return None
    return (auc["model"] - auc["logistic_regression"]) / (auc["planted"] - auc["logistic_regression"])


@dataclass(frozen=True, kw_only=True)
class Check:
    """One comparison of served with offline values. ``passed`` None: reported, judged where it was measured."""

    label: str
    value: str
    wanted: str
    passed: bool | None


def parity_checks(figures: dict[str, Any]) -> list[Check]:
    """Return a push stage's comparisons. A figure that is absent has not passed."""
    parity = figures.get("parity") or {}
    if not parity:
        return []
    return [
        _zero("Served ids that differ from the feature table", parity.get("ids_differ")),
        _zero("Dense values more than one unit in the last place off", parity.get("dense_differ")),
        Check(
            label="Dense values one unit in the last place off",
            value=count(parity.get("dense_ulp")),
            wanted="allowed",
            passed=None,
        ),
        _zero("Served scores that differ in any bit from in-process scores", parity.get("scores_differ")),
        _at_most("Largest |Δ logit| to the trainer, over 1 + |logit|", parity.get("max_logit_delta"), LOGIT_TOLERANCE),
        _at_most("|Δ AUC| to the trainer", parity.get("auc_delta"), AUC_TOLERANCE),
    ]


def _zero(label: str, value: Any) -> Check:
    return Check(label=label, value=count(value), wanted="0", passed=number(value) == 0)


def _at_most(label: str, value: Any, limit: float) -> Check:
    found = number(value)
    size = None if found is None else abs(found)
    return Check(
        label=label, value=scientific(size), wanted=f"≤ {limit:.0e}", passed=size is not None and size <= limit
    )


def parity_verdict(figures: dict[str, Any]) -> tuple[bool | None, str]:
    """Return whether served equals offline (None: not measured) and the sentence that says so."""
    checks = parity_checks(figures)
    if not checks:
        return None, "not measured"
    rows = count(figures["parity"].get("rows"))
    failed = [check for check in checks if check.passed is False]
    if failed:
        return False, f"{failed[0].label}: {failed[0].value}, wanted {failed[0].wanted}"
    return True, f"served = offline on {rows} rows"


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds of requests of ``size`` rows; ``ratio`` is of the served to the in-process median."""

    size: int
    p50: float
    p99: float
    in_process_p50: float | None
    ratio: float | None

    @property
    def budget(self) -> str:
        """What the ratio is to stay within."""
        limit = LATENCY_BUDGETS.get(self.size)
        return DASH if limit is None else f"≤ {limit}"

    @property
    def passed(self) -> bool | None:
        """None where nothing was asked of this size, or nothing measured."""
        limit = LATENCY_BUDGETS.get(self.size)
        return None if limit is None or self.ratio is None else self.ratio <= limit

    @property
    def rows_per_second(self) -> str:
        """At the median."""
        return count(1000 * self.size / self.p50) if self.p50 > 0 else DASH


def latencies(figures: dict[str, Any]) -> list[Latency]:
    """Return a push stage's latencies by batch size."""
    alone, ratios = figures.get("in_process_ms") or {}, figures.get("latency_ratio") or {}
    found = []
    for size, pair in (figures.get("latency_ms") or {}).items():
        if str(size).isdigit() and interval(pair):
            p50, p99 = float(pair[0]), float(pair[1])
            in_process_p50 = float(alone[size][0]) if interval(alone.get(size)) else None
            ratio = number(ratios.get(size))
            found.append(Latency(size=int(size), p50=p50, p99=p99, in_process_p50=in_process_p50, ratio=ratio))
    return sorted(found, key=lambda one: one.size)


def way_closed_sentence(figures: dict[str, Any]) -> str | None:
    """Return the comparison in words, for the terminal and for screen readers."""
    share = share_closed(figures)
    return None if share is None else f"{percent(share)} of the way from logistic regression to the best possible"


def below_baseline_sentence(figures: dict[str, Any]) -> str | None:
    """Return why a model may lie below logistic regression, by its rows and sizes; None where it does not."""
    auc = {c.key: c.auc for c in contenders(figures)}
    if "model" not in auc or auc["model"] >= auc.get("logistic_regression", auc["model"]):
        return None
    found = "The trained model is below logistic regression"
    rows, numbers = (number(figures.get(name)) for name in ("num_train_rows", "num_parameters"))
    if rows is None or numbers is None:
        return f"{found}."
    if rows < numbers:
        return (
            f"{found}: {count(rows)} training rows are few for {count(numbers)} numbers in its embedding tables. "
            f"More rows are the remedy: the full demo, make demo, has a million."
        )
    return f"{found} on {count(rows)} training rows; try more epochs or other learning rates."


def training_end_sentence(figures: dict[str, Any]) -> str | None:
    """Return how many epochs were trained, why no more, and which is the best: of the run that chose, if one did."""
    chosen = figures.get("choice") or figures
    trained, asked = len(chosen.get("epochs") or []), number(chosen.get("max_epochs"))
    if not trained or asked is None:
        return None
    best, metric = number(chosen.get("best_epoch")), shown(chosen.get("metric")).replace("_", " ").replace("auc", "AUC")
    if chosen.get("stopped_early") and best is not None:
        use = f"the final training has {_epochs(int(best))}" if figures.get("choice") else "its weights are the result"
        return (
            f"Stopped early, after {trained} of {count(asked)} epochs: {_epochs(trained - int(best))} without a better "
            f"valid {metric} than epoch {count(best)}'s; {use}."
        )
    judged = any(epoch.get("valid") for epoch in chosen["epochs"])
    kept = f"; epoch {count(best)} has the best valid {metric}" if judged and trained > 1 else ""
    return f"Trained for {_epochs(trained)}, as many as asked{kept}."


def _epochs(num: int) -> str:
    return f"{count(num)} epoch{'' if num == 1 else 's'}"


def no_op_sentence(figures: dict[str, Any]) -> str:
    """Return what an etl stage says that had nothing to write: the runs that wrote the days, and their seconds."""
    writers = [(shown(one.get("run_id")), duration(one.get("seconds"))) for one in figures.get("written_by") or []]
    runs = " and ".join(f"run {run_id} in {took}" if took != DASH else f"run {run_id}" for run_id, took in writers)
    by = f"; its days were written by {runs}" if runs else ""
    return f"The input was that of an earlier run: nothing was written{by}."
