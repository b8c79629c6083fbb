"""Claiming an attempt at a day, and what is recorded of the day under it before its features.

Lines without a day (a header, a line whose day could not be told) and those of a day that no row is of (each of its
lines quarantined) are accounted with the first day of their file that holds rows, those of a file without rows with the
last such day before its own.
"""

import bisect
import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rec.core.errors import ConcurrentWriteError
from rec.core.manifest import sha256_json
from rec.etl.delta import Transaction, delete_rows, table_version, write_frame
from rec.etl.files import TRIES, append_small, file_ids, rebased
from rec.etl.lake import Lake
from rec.etl.ledger import LedgerRow
from rec.etl.source import Source
from rec.ops.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

BY_ATTEMPT = ("ledger", "quarantine", "counts", "statistics")


def input_digests(source: Source, pipeline: Pipeline, days: Iterable[int]) -> dict[int, str]:
    """Return each day's sha256 of what its rows are made from: files, the source's settings, the operators."""
    common = {"settings": source.settings, "pipeline": pipeline.canonical()}
    rows = _rows_by_day(source)
    return {day: sha256_json({**common, "files": [source.files[row.file].sha256 for row in rows[day]]}) for day in days}


def record_days(
    source: Source, lake: Lake, spark: "SparkSession", run_id: str, digests: Mapping[int, str]
) -> dict[int, int]:
    """Claim an attempt at each day of ``digests`` and append its ledger and quarantine rows; return {day: attempt}."""
    ids = file_ids(source, lake, spark, run_id)
    attempts = _claim(source, lake, spark, run_id, digests, ids)
    _append_quarantine(source, lake, spark, run_id, attempts, ids)
    return attempts


def with_attempt(frame: "DataFrame", attempts: Mapping[int, int], columns: Iterable[str]) -> "DataFrame":
    """Return the rows of the attempts' days as (day, attempt, columns): day and attempt as their tables hold them."""
    cases = " ".join(f"WHEN {day} THEN {attempt}" for day, attempt in sorted(attempts.items()))
    days = ", ".join(str(day) for day in sorted(attempts))
    return frame.where(f"day IN ({days})").selectExpr("day", f"CAST(CASE day {cases} END AS INT) AS attempt", *columns)


def remove_dead(lake: Lake, spark: "SparkSession", run_id: str) -> int:
    """Delete what lies below a day's visible attempt: it can never become visible. Return how many attempts.

    What lies above may belong to a run that is still at work; the commit that overtakes it makes it dead.
    """
    visible = {day: shown.attempt for day, shown in lake.visible().items()}
    dead: set[tuple[int, int]] = set()
    for table in BY_ATTEMPT:
        mine = {(day, attempt) for day, attempt in lake.attempts(table) if attempt < visible.get(day, 0)}
        if mine:
            condition = " OR ".join(f"(day = {day} AND attempt = {attempt})" for day, attempt in sorted(mine))
            delete_rows(spark, lake.uri(table), condition, {"run_id": run_id, "dead": len(mine)})
        dead |= mine
    return len(dead)


def _rows_by_day(source: Source) -> dict[int, list[LedgerRow]]:
    held, day_of_file = set(source.ledger.days), _days_of_files(source)
    found: dict[int, list[LedgerRow]] = {}
    for row in source.ledger.rows:
        day = row.day if row.day in held else day_of_file[row.file]
        found.setdefault(day, []).append(row)
    return found


def _days_of_files(source: Source) -> dict[int, int]:
    """Return for each file the day that its lines go with where no row is of theirs."""
    held = source.ledger.days
    told: dict[int, int] = {}
    days: dict[int, int] = {}
    for row in source.ledger.rows:
        if row.day is not None:
            told[row.file] = min(row.day, told.get(row.file, row.day))
            if row.rows:
                days[row.file] = min(row.day, days.get(row.file, row.day))
    for file in {row.file for row in source.ledger.rows} - days.keys():
        before = bisect.bisect_right(held, told[file]) if file in told else 0
        days[file] = held[max(before - 1, 0)] if held else 0
    return days


def _claim(
    source: Source, lake: Lake, spark: "SparkSession", run_id: str, digests: Mapping[int, str], ids: list[int]
) -> dict[int, int]:
    uri = lake.create("ledger")
    rows = _rows_by_day(source)
    for _ in range(TRIES):
        transaction = Transaction(app_id="ledger", version=table_version(uri) + 1)
        taken = {day: shown.attempt for day, shown in lake.visible().items()}
        for day, attempt in lake.attempts("ledger"):
            taken[day] = max(attempt, taken.get(day, 0))
        attempts = {day: taken.get(day, 0) + 1 for day in digests}
        columns = _ledger_columns([(day, row) for day in sorted(digests) for row in rows[day]], attempts, digests, ids)
        if append_small(spark, lake, "ledger", columns, {"run_id": run_id}, transaction):
            return attempts
    raise ConcurrentWriteError(f"table {uri}: {TRIES} tries lost to other runs; run it again")


def _ledger_columns(
    rows: list[tuple[int, LedgerRow]], attempts: Mapping[int, int], digests: Mapping[int, str], ids: list[int]
) -> dict[str, Any]:
    def counted(name: str) -> pa.Array:
        return pa.array([getattr(row, name) for _, row in rows], pa.int64())

    return {
        "day": pa.array([day for day, _ in rows], pa.int32()),
        "attempt": pa.array([attempts[day] for day, _ in rows], pa.int32()),
        "file_id": pa.array([ids[row.file] for _, row in rows], pa.int64()),
        "path": pa.array([row.path for _, row in rows], pa.string()),
        **{name: counted(name) for name in ("lines", "accepted", "padded", "header")},
        "quarantined": pa.array([sum(row.quarantined.values()) for _, row in rows], pa.int64()),
        **{name: counted(name) for name in ("unlabelled", "positive")},
        "reasons": pa.array([json.dumps(row.quarantined) for _, row in rows], pa.string()),
        "input_digest": pa.array([digests[day] for day, _ in rows], pa.string()),
    }


def _append_quarantine(
    source: Source, lake: Lake, spark: "SparkSession", run_id: str, attempts: Mapping[int, int], ids: list[int]
) -> None:
    rows = _rows_by_day(source)
    uri = lake.create("quarantine")
    if not any(row.quarantined for day in attempts for row in rows[day]):
        return
    cases = " ".join(f"WHEN {file} THEN {day}" for file, day in sorted(_days_of_files(source).items()))
    held = ", ".join(map(str, source.ledger.days))
    dated = source.quarantine.selectExpr(
        f"CAST(CASE WHEN day IN ({held}) THEN day ELSE CASE file {cases} END END AS INT) AS day",
        f"{rebased('row_key', ids)} AS row_key",
        "file_name AS file",
        "CAST(line AS BIGINT) AS line",
        "text",
        "reason",
    )
    columns = ("row_key", "file", "line", "text", "reason")
    write_frame(uri, with_attempt(dated, attempts, columns), {"run_id": run_id})
