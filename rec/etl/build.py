"""The features stage of a recipe: raw rows to a table of features, and the figures that its record keeps."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.records import Run
from rec.core.tables import FeatureTable
from rec.etl.delta import commits
from rec.etl.fit import fit_features
from rec.etl.lake import Lake
from rec.etl.profile import column_figures
from rec.etl.scan import union
from rec.etl.sink import write_days
from rec.etl.source import Source
from rec.etl.vocabulary import entries_at
from rec.ops.pipeline import FittedPipeline, Pipeline
from rec.ops.vocabulary import VocabularyState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class BuiltFeatures:
    """A source, the states fitted on it and the table made of it; ``written`` are the days that were not there."""

    source: Source
    fitted: FittedPipeline
    table: FeatureTable
    written: tuple[int, ...]

    def figures(self) -> dict[str, Any]:
        """Return what the run record keeps of the ledger and of every column."""
        log.info("summing up the columns of days %s", list(self.table.days))
        return {
            "ledger": [row.figures() for row in self.source.ledger.rows],
            "num_rows": self.table.num_rows,
            "days": list(self.table.days),
            "state_id": self.table.state_id,
            "no_op": not self.written,
            "written_by": [] if self.written else self._writers(),
            "columns": column_figures(
                self._features(), self._vocabulary(), self.table.schema, self.source.ledger.missing
            ),
        }

    @property
    def _spark(self) -> "SparkSession":
        return self.source.frame.sparkSession

    def _writers(self) -> list[dict[str, Any]]:
        """Return the runs that wrote the table's days; one that was no run of a recipe has no seconds."""
        by_day: dict[int, str] = {}
        for done in commits(self.table.uri, until=self.table.version):
            if "attempt" in done.metadata:
                by_day.setdefault(done.metadata["day"], done.metadata["run_id"])
        run_ids = dict.fromkeys(by_day[day] for day in self.table.days)
        records = {run_id: Run(self.fitted.root, run_id).read().get("etl") for run_id in run_ids}
        return [{"run_id": run_id, "seconds": record and record.seconds} for run_id, record in records.items()]

    def _features(self) -> "DataFrame":
        table = self._spark.read.format("delta").option("versionAsOf", self.table.version).load(self.table.uri)
        return table.where(f"day IN ({', '.join(map(str, self.table.days))})")

    def _vocabulary(self) -> "DataFrame":
        """Return the entries that the states were fitted to: another run may have committed later ones."""
        lake = Lake(self.fitted.root)
        states = [s for row in self.fitted.states for s in row if isinstance(s, VocabularyState)]
        parts = [entries_at(lake, self._spark, s.table.version, list(s.columns)) for s in states if s.table]
        if not parts:
            return self._spark.read.format("delta").load(lake.create("vocabulary"))
        return union(parts)


def build_features(
    source: Source, pipeline: Pipeline, root: str | Path, days: tuple[int, ...], run_id: str
) -> BuiltFeatures:
    """Fit the pipeline on some days of the source and write all of its days. Raises as fit and sink do."""
    fitted = fit_features(source, pipeline, root, days, run_id)
    table, written = write_days(source, fitted, run_id)
    return BuiltFeatures(source=source, fitted=fitted, table=table, written=written)
