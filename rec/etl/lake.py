"""The tables under a root, and what of them is visible.

An *attempt* is one try at writing a day, numbered from 1. Ledger, quarantine, counts and statistics rows carry their
(day, attempt) and are appended first; the commit of the features, last, makes one attempt of a day visible. Which one
stands in that commit's userMetadata, so a version of the features table tells every other table's part of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.errors import ConcurrentWriteError
from rec.etl.config import root_path
from rec.etl.delta import TableColumn, commits, create_table, open_table, partitions, table_exists, table_version
from rec.ops.admission import VOCABULARY_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ATTEMPT = ("day", "attempt")
_BY_ATTEMPT = "day INT!, attempt INT!, "
# Name and type of each column, ! where it is never null.
_COLUMNS = {
    "files": "file_id BIGINT!, path STRING, sha256 STRING, num_bytes BIGINT, num_lines BIGINT",
    "ledger": _BY_ATTEMPT + "file_id BIGINT, path STRING, lines BIGINT, accepted BIGINT, padded BIGINT, header BIGINT, "
    "quarantined BIGINT, unlabelled BIGINT, positive BIGINT, reasons STRING, input_digest STRING",
    "quarantine": _BY_ATTEMPT + "row_key BIGINT, file STRING, line BIGINT, text STRING, reason STRING",
    "counts": _BY_ATTEMPT + "column STRING!, key BIGINT, value STRING, count BIGINT!",
    "statistics": _BY_ATTEMPT + "column STRING!, name STRING!, value DECIMAL(38,0)!",
    "vocabulary": VOCABULARY_SCHEMA.replace("`", ""),
}
_PARTITIONS = {"files": (), "vocabulary": ("column",)}


@dataclass(frozen=True, kw_only=True)
class VisibleDay:
    """What the features table shows of a day. ``digest`` is of the input, the operators and the state."""

    day: int
    attempt: int
    digest: str
    input_digest: str
    state_id: str
    num_rows: int
    versions: dict[str, int]


class Lake:
    """A root folder and the addresses of its tables."""

    def __init__(self, root: str | Path):
        # Spark takes a path without a scheme relative to the JVM's folder, Delta's builder not at all.
        self.root = str(Path(root_path(root)).absolute())

    def uri(self, table: str) -> str:
        return f"{self.root}/{table}"

    def state_folder(self, state_id: str) -> Path:
        return Path(self.root, "states", state_id)

    @property
    def staging(self) -> Path:
        """Where a run lays what only itself reads; below the root, which every executor reaches."""
        return Path(self.root, "staging")

    def create(self, table: str) -> str:
        """Return a table's address, after creating it where it is not there."""
        pairs = [text.split(" ") for text in _COLUMNS[table].split(", ")]
        columns = [TableColumn(name, sql_type.rstrip("!"), not sql_type.endswith("!")) for name, sql_type in pairs]
        create_table(self.uri(table), columns, _PARTITIONS.get(table, ATTEMPT))
        return self.uri(table)

    def attempts(self, table: str, version: int | None = None) -> set[tuple[int, int]]:
        """Return the (day, attempt) pairs that a table holds rows of: each was written by one commit, whole."""
        return {(int(p["day"]), int(p["attempt"])) for p in partitions(self.uri(table), version)}

    def read(self, spark: "SparkSession", table: str, attempts: dict[int, int]) -> "DataFrame":
        """Return the rows of one attempt of each day, as the table's newest version holds them.

        Raises ConcurrentWriteError where an attempt has none: another run overtook it, and removed it as dead.
        """
        version = table_version(self.uri(table))
        gone = attempts.items() - self.attempts(table, version)
        if gone:
            day, attempt = min(gone)
            raise ConcurrentWriteError(
                f"table {self.uri(table)} version {version}: attempt {attempt} at day {day} was removed by a run that "
                "wrote the day anew; run it again"
            )
        pairs = " OR ".join(f"(day = {day} AND attempt = {attempt})" for day, attempt in sorted(attempts.items()))
        frame = spark.read.format("delta").option("versionAsOf", version).load(self.uri(table))
        return frame.where(pairs or "false")

    def check_tables(self) -> None:
        """Raise TableError where one of the tables has a feature that is not allowed."""
        for table in ("features", "goldens", *_COLUMNS):
            if table_exists(self.uri(table)):
                open_table(self.uri(table))

    def versions(self, tables: Iterable[str]) -> dict[str, int]:
        return {table: table_version(self.uri(table)) for table in tables}

    def visible(self, version: int | None = None) -> dict[int, VisibleDay]:
        """Return the visible attempt of every day of a features version, the newest if none is given."""
        uri = self.uri("features")
        if version is None and not table_exists(uri):
            return {}
        open_table(uri, version)
        found: dict[int, VisibleDay] = {}
        for commit in commits(uri, until=version):
            if "attempt" in commit.metadata:
                found.setdefault(commit.metadata["day"], _visible_day(commit.metadata))
        return dict(sorted(found.items()))


def _visible_day(metadata: dict[str, Any]) -> VisibleDay:
    return VisibleDay(**{name: metadata[name] for name in VisibleDay.__dataclass_fields__})
