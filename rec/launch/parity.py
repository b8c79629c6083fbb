"""Every test row asked of the server: what it encodes and scores, beside the feature table and the trainer."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rec.bundle.bundle import Bundle
from rec.core.errors import ServingError
from rec.core.tables import FeatureTable
from rec.core.values import Values
from rec.etl.files import file_ids, rebased
from rec.etl.lake import Lake
from rec.launch.slices import BATCH_ROWS, SLICE_ROWS, sliced
from rec.ops.op import quoted
from rec.serve.frames import raw_columns
from rec.serve.parity import OfflineRows, ParityReport, compare, score_in_process
from rec.serve.push import ServedVersion
from rec.train.curves import read_scores
from rec.train.metrics import ScoreCounts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rec.etl.source import Source

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
    """Return the figures of a comparison over every labelled row of the days. Raises ServingError where the rows are
    not those that the trainer scored or a served value is not the offline one."""
    trainer = read_scores(given.scores_folder)
    starts = range(0, len(trainer["row_key"]), SLICE_ROWS)
    # Any row below the first key belongs to the first slice.
    first_keys = [0, *trainer["row_key"][SLICE_ROWS::SLICE_ROWS].tolist()]
    reports, logits = [], []
    for start, joined in zip(starts, sliced(_joined(given), first_keys)):
        part = {name: values[start : start + SLICE_ROWS] for name, values in trainer.items()}
        report, served_logit_B = _compare_slice(served, bundle, given, joined, part)
        reports.append(report)
        logits.append(served_logit_B)
    total = _total(reports)
    if not total.holds:
        raise ServingError(f"model {served.model_name} version {served.version}: {total.summary}; rec rollback RECIPE")
    delta = _auc(np.concatenate(logits), trainer["label"]) - _auc(trainer["logit"], trainer["label"])
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


def measure_latency(served: ServedVersion, bundle: Bundle, source: "Source") -> dict[str, dict[str, Any]]:
    """Return ``latency_ms`` of requests with raw rows, one at a time, and ``in_process_ms`` of the bundle alone, both
    {rows per request: [p50, p99]}, and ``latency_ratio``, the one's p50 over the other's.

    Server and bundle score the same rows in turn, with as many threads: what else the machine does meets both.
    """
    with served.client() as client:
        here = Bundle(bundle.path, client.state.threads)
        raw, _ = raw_columns(source.frame.limit(max(LATENCY_BATCHES)), client.state.raw)
        num_rows = len(next(iter(raw.values())).data_B)
        found: dict[str, dict[str, Any]] = {"latency_ms": {}, "in_process_ms": {}, "latency_ratio": {}}
        for size in LATENCY_BATCHES:
            rows = np.arange(size) % num_rows
            batch = {n: Values(v.data_B[rows], v.missing_B[rows]) for n, v in raw.items()}
            scorers = (client.score, here.score)
            times_NS = np.array([[_milliseconds(s, batch) for s in scorers] for _ in range(1 + LATENCY_REQUESTS)])
            # The first of each warms up.
            (served_p50, here_p50), (served_p99, here_p99) = np.percentile(times_NS[1:], (50, 99), axis=0).tolist()
            found["latency_ms"][str(size)] = [served_p50, served_p99]
            found["in_process_ms"][str(size)] = [here_p50, here_p99]
            found["latency_ratio"][str(size)] = served_p50 / here_p50
    return found


def _milliseconds(score: Callable[[dict[str, Values]], Any], batch: dict[str, Values]) -> float:
    start = time.perf_counter()
    score(batch)
    return (time.perf_counter() - start) * 1e3


def _compare_slice(
    served: ServedVersion, bundle: Bundle, given: ParityInput, joined: "pa.Table", trainer: dict[str, np.ndarray]
) -> tuple[ParityReport, np.ndarray]:
    schema = given.table.schema
    with served.client() as client:
        raw, row_key_B = raw_columns(joined, client.state.raw)
        assert row_key_B is not None
        if not np.array_equal(row_key_B, trainer["row_key"]):
            raise ServingError(
                f"days {list(given.days)}: the {len(row_key_B)} raw rows joined are not the {len(trainer['row_key'])} "
                "that the trainer scored; the source changed since the features were written, run rec etl again"
            )
        scores = client.score(raw, encoded=True, batch_size=BATCH_ROWS)
    offline = OfflineRows(
        dense_BD=np.stack([joined[_encoded(c.name)].to_numpy() for c in schema.dense], 1),
        ids_BF=np.stack([joined[_encoded(c.name)].to_numpy() for c in schema.sparse], 1).astype(np.int64),
        scores=score_in_process(bundle, raw, BATCH_ROWS),
        trainer_logit_B=trainer["logit"],
    )
    return compare(scores, offline), scores.logit_B


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
