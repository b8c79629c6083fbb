"""Every test row asked of the server: what it encodes and scores, beside the feature table and the trainer."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rec.bundle.bundle import Bundle
from rec.core.errors import ServingError
from rec.core.tables import FeatureTable
from rec.etl.files import file_ids, rebased
from rec.etl.lake import Lake
from rec.ops.op import quoted
from rec.serve.frames import raw_columns
from rec.serve.parity import OfflineRows, ParityReport, compare, score_in_process
from rec.serve.push import ServedVersion
from rec.train.curves import read_scores
from rec.train.metrics import ScoreCounts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rec.etl.source import Source

# Rows compared at once: bounds the driver's memory, whatever the size of the test days.
SLICE_ROWS = 250_000
BATCH_ROWS = 2048
LATENCY_BATCHES = (1, 64, 2048)
LATENCY_REQUESTS = 100


@dataclass(frozen=True, kw_only=True)
class ParityInput:
    """What is compared: raw rows, the table they became, and the trainer's scores of the days."""

    source: "Source"
    table: FeatureTable
    days: tuple[int, ...]
    scores_folder: Path
    run_id: str


def measure_parity(served: ServedVersion, bundle: Bundle, given: ParityInput) -> dict[str, Any]:
    """Return the figures of a comparison over every labelled row of the days. Raises ServingError where rows differ
    in number or a served value is not the offline one."""
    trainer = read_scores(given.scores_folder)
    num_slices = -(-len(trainer["row_key"]) // SLICE_ROWS)
    reports, logits = [], []
    for number in range(num_slices):
        report, served_logit_B = _compare_slice(served, bundle, given, (number, num_slices), trainer)
        reports.append(report)
        logits.append(served_logit_B)
    total = _total(reports)
    if not total.holds:
        raise ServingError(f"model {served.model_name} version {served.version}: {total.summary}; rec rollback RECIPE")
    if total.num_rows != len(trainer["row_key"]):
        raise ServingError(
            f"days {list(given.days)}: {total.num_rows} raw rows joined, the trainer scored {len(trainer['row_key'])}; "
            "the source changed since the features were written, run rec etl again"
        )
    label_B = np.concatenate([part[1] for part in logits])
    delta = _auc(np.concatenate([part[0] for part in logits]), label_B) - _auc(trainer["logit"], trainer["label"])
    return {
        "rows": total.num_rows,
        "ids_differ": total.ids_different,
        "dense_differ": total.dense_different,
        "dense_ulp": total.dense_last_place,
        "scores_differ": total.scores_different,
        "trainer_differ": total.trainer_different,
        "max_logit_delta": total.max_trainer_relative,
        "auc_delta": delta,
    }


def measure_latency(served: ServedVersion, source: "Source") -> dict[str, list[float]]:
    """Return {rows per request: [p50, p99] in milliseconds} of requests with raw rows, one at a time."""
    with served.client() as client:
        raw, _ = raw_columns(source.frame.limit(max(LATENCY_BATCHES)), client.state.raw)
        num_rows = len(next(iter(raw.values())).data_B)
        found = {}
        for size in LATENCY_BATCHES:
            rows = np.arange(size) % num_rows
            batch = {n: type(v)(v.data_B[rows], v.missing_B[rows]) for n, v in raw.items()}
            times = []
            for _ in range(LATENCY_REQUESTS):
                start = time.perf_counter()
                client.score(batch)
                times.append((time.perf_counter() - start) * 1e3)
            found[str(size)] = [float(np.percentile(times, q)) for q in (50, 99)]
    return found


def _compare_slice(
    served: ServedVersion, bundle: Bundle, given: ParityInput, place: tuple[int, int], trainer: dict[str, np.ndarray]
) -> tuple[ParityReport, tuple[np.ndarray, np.ndarray]]:
    schema = given.table.schema
    joined = _joined(given).where(f"PMOD(XXHASH64(row_key), {place[1]}) = {place[0]}").toArrow()
    with served.client() as client:
        raw, row_key_B = raw_columns(joined, client.state.raw)
        scores = client.score(raw, encoded=True, batch_size=BATCH_ROWS)
    assert row_key_B is not None
    at = np.searchsorted(trainer["row_key"], row_key_B)
    offline = OfflineRows(
        dense_BD=np.stack([joined[_encoded(c.name)].to_numpy() for c in schema.dense], 1),
        ids_BF=np.stack([joined[_encoded(c.name)].to_numpy() for c in schema.sparse], 1).astype(np.int64),
        scores=score_in_process(bundle, raw, BATCH_ROWS),
        trainer_logit_B=trainer["logit"][at],
    )
    return compare(scores, offline), (scores.logit_B, trainer["label"][at])


def _joined(given: ParityInput) -> "DataFrame":
    """Return raw columns beside encoded ones of the labelled rows, joined on row_key."""
    spark = given.source.frame.sparkSession
    days = f"day IN ({', '.join(map(str, given.days))})"
    root = Path(given.table.uri).parent
    ids = file_ids(given.source, Lake(root), spark, given.run_id)
    names = [c.name for c in (*given.source.schema.dense, *given.source.schema.sparse)]
    raw = given.source.frame.where(days).selectExpr(f"{rebased('row_key', ids)} AS row_key", *map(quoted, names))
    table = spark.read.format("delta").option("versionAsOf", given.table.version).load(given.table.uri)
    features = [*given.table.schema.dense, *given.table.schema.sparse]
    label = quoted(given.table.schema.label.name)
    encoded = table.where(days).where(f"{label} IS NOT NULL")
    encoded = encoded.selectExpr("row_key", *[f"{quoted(c.name)} AS {quoted(_encoded(c.name))}" for c in features])
    return raw.join(encoded, "row_key")


def _encoded(name: str) -> str:
    return f"encoded.{name}"


def _auc(logit_B: np.ndarray, label_B: np.ndarray) -> float:
    return ScoreCounts.of(logit_B, label_B).totals().evaluation(()).auc


def _total(reports: list[ParityReport]) -> ParityReport:
    sums = {
        name: (max if name.startswith("max_") else sum)(getattr(r, name) for r in reports)
        for name in ParityReport.model_fields
    }
    return ParityReport(**sums)
