"""Writing the feature table: encode once, commit day by day, last of all that a run writes."""

import logging
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.errors import ConcurrentWriteError, TableError
from rec.core.manifest import sha256_json
from rec.core.schema import FeatureSchema
from rec.core.tables import FeatureTable
from rec.etl.attempts import BY_ATTEMPT, input_digests, record_days, remove_dead
from rec.etl.counts import append_counts, carry_counts, counted_days
from rec.etl.delta import (
    TableColumn,
    Transaction,
    create_table,
    session_settings,
    write_frame,
)
from rec.etl.features import check_columns, check_root, open_features
from rec.etl.files import TRIES, file_ids, rebased
from rec.etl.fit import new_run_id
from rec.etl.goldens import write_goldens
from rec.etl.lake import Lake, VisibleDay
from rec.etl.order import ordered
from rec.etl.scan import escape
from rec.etl.source import Source
from rec.etl.staging import PARTITIONED_WRITE, remove_stale
from rec.ops.dense import SQL_TYPES
from rec.ops.op import quoted
from rec.ops.pipeline import FittedPipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_OTHER_TABLES = ("files", *BY_ATTEMPT, "vocabulary", "goldens")


def write_features(source: Source, fitted: FittedPipeline, run_id: str | None = None) -> FeatureTable:
    """Write every day of the source and return the table; a day whose input and state did not change is left alone.

    Raises QuarantineLimitError, SchemaDriftError where the table's columns are others, ConcurrentWriteError.
    """
    return write_days(source, fitted, run_id or new_run_id())[0]


def write_days(source: Source, fitted: FittedPipeline, run_id: str) -> tuple[FeatureTable, tuple[int, ...]]:
    """As ``write_features``; return the days written too."""
    check_root(Lake(fitted.root), fitted.pipeline, source.schema)
    source.check()
    writer = _Writer(source, fitted, run_id)
    todo = writer.changed(source.ledger.days)
    same = sorted(set(source.ledger.days) - set(todo))
    if same:
        log.info("days %s: same input and state, nothing to write", same)
    if todo:
        writer.write(todo)
    remove_dead(writer.lake, writer.spark, run_id)
    return open_features(fitted.root, days=source.ledger.days), tuple(todo)


class _Writer:
    """One run's work on the feature table."""

    def __init__(self, source: Source, fitted: FittedPipeline, run_id: str):
        self.source, self.fitted, self.run_id = source, fitted, run_id
        self.lake, self.spark = Lake(fitted.root), source.frame.sparkSession
        self.inputs = input_digests(source, fitted.pipeline, source.ledger.days)
        self.encoded_schema = fitted.encoded_schema

    def changed(self, days: Iterable[int]) -> list[int]:
        """Return the days whose visible attempt is not of this input and state."""
        visible = self.lake.visible()
        return [day for day in days if day not in visible or visible[day].digest != self._digest(day)]

    def write(self, days: list[int]) -> None:
        uri = self.lake.uri("features")
        create_table(uri, _columns(self.encoded_schema), ("day",))
        check_columns(uri, self.encoded_schema)
        write_goldens(self.source, self.fitted, self.lake, self.run_id)
        attempts = self._attempts(days)
        log.info("encoding days %s", days)
        folder = self.lake.staging / self.run_id
        try:
            encoded = self._encoded(days, folder)
            for day in days:
                self._write_day(day, attempts[day], encoded)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            remove_stale(self.lake.staging)

    def _write_day(self, day: int, attempt: int, encoded: "DataFrame") -> None:
        log.info("writing day %d", day)
        for _ in range(TRIES):
            if self._commit(day, attempt, encoded):
                return
            if not self.changed([day]):
                log.info("day %d: another run committed the same input and state first", day)
                return
            attempt = self._attempts([day])[day]
        raise ConcurrentWriteError(f"features day {day}: {TRIES} tries lost to other runs; run it again")

    def _commit(self, day: int, attempt: int, encoded: "DataFrame") -> bool:
        """Make an attempt visible; False where another run's commit stands in its way."""
        num_rows = sum(row.rows for row in self.source.ledger.rows if row.day == day)
        shown = VisibleDay(
            day=day,
            attempt=attempt,
            digest=self._digest(day),
            input_digest=self.inputs[day],
            state_id=self.fitted.state_id,
            num_rows=num_rows,
            versions=self.lake.versions(_OTHER_TABLES),
        )
        rows = ordered(encoded.where(f"day = {day}"), num_rows)
        transaction = Transaction(app_id=f"features/{day}", version=attempt)
        metadata = {**asdict(shown), "run_id": self.run_id}
        uri = self.lake.uri("features")
        try:
            done = write_frame(uri, rows, metadata, transaction, f"day = {day}", merge_schema=True)
        except ConcurrentWriteError:
            return False
        if done and done.num_rows != num_rows:
            raise TableError(
                f"{uri} version {done.version} day {day}: {done.num_rows} rows written, the ledger has {num_rows}; "
                "a source file changed while it was read, run rec etl again"
            )
        return done is not None

    def _attempts(self, days: list[int]) -> dict[int, int]:
        """Return an attempt for each day that lies above the visible one: the fit's own, or one claimed now."""
        visible = {day: shown.attempt for day, shown in self.lake.visible().items()}
        counted = {day: c.attempt for day, c in self.fitted.counted.items() if c.input_digest == self.inputs.get(day)}
        attempts = {day: counted[day] for day in days if counted.get(day, 0) > visible.get(day, 0)}
        fresh = {day: self.inputs[day] for day in days if day not in attempts}
        if fresh:
            claimed = record_days(self.source, self.lake, self.spark, self.run_id, fresh)
            self._count(claimed, counted)
            attempts |= claimed
        return attempts

    def _count(self, claimed: Mapping[int, int], counted: Mapping[int, int]) -> None:
        """Give claimed attempts at fitted days their counts: carried where they were counted, counted where not."""
        pipeline = self.fitted.pipeline
        whole = counted_days(pipeline, self.lake, counted)
        moves = {d: (counted[d], a) for d, a in claimed.items() if d in whole}
        if moves:
            carry_counts(self.spark, pipeline, self.lake, self.run_id, moves)
        recount = {d: a for d, a in claimed.items() if d in self.fitted.days and d not in moves}
        if recount:
            append_counts(self.source.keyed, self.source.schema, pipeline, self.lake, self.run_id, recount)

    def _encoded(self, days: list[int], folder: Path) -> "DataFrame":
        """Return some days encoded. Several are laid down first, so that the source is read once and not by day."""
        ids = file_ids(self.source, self.lake, self.spark, self.run_id)
        frame = self.source.keyed.where(f"day IN ({', '.join(map(str, days))})")
        based = {"row_key": f"{rebased('row_key', ids)} AS row_key", "day": "CAST(day AS INT) AS day"}
        frame = frame.selectExpr(*[based.get(name, quoted(name)) for name in frame.columns])
        order = ["row_key", *[c.name for c in self.encoded_schema.columns], "day"]
        encoded = self.fitted.transform(frame).selectExpr(*[quoted(name) for name in order])
        if len(days) == 1:
            return encoded
        with session_settings(self.spark, PARTITIONED_WRITE):
            encoded.write.partitionBy("day").parquet(str(folder))
        return self.spark.read.schema(encoded.schema).parquet(escape(str(folder)))

    def _digest(self, day: int) -> str:
        return sha256_json({"input": self.inputs[day], "state_id": self.fitted.state_id})


def _columns(schema: FeatureSchema) -> list[TableColumn]:
    features = [TableColumn(c.name, SQL_TYPES[c.dtype], c.role not in ("dense", "sparse")) for c in schema.columns]
    return [TableColumn("row_key", "BIGINT", False), *features, TableColumn("day", "INT", False)]
