"""Delta tables as this project keeps them: created once with fixed properties, written by commits that are read back.

Delta drops a write whose ``txnVersion`` was used, without an error. So every commit carries a token in its
userMetadata, and the log is read back for it: no token, no commit.
"""

import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from rec.core.errors import ConcurrentWriteError, TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

# A stock VACUUM removes nothing a pinned version still reads: files are kept for a century.
PROPERTIES = {
    "delta.deletedFileRetentionDuration": "interval 36500 days",
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
}
# Features under which a data file still holds exactly the rows and columns that its Parquet footer says.
ALLOWED_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
_DELTA_TYPES = {
    "INT": "integer",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "DECIMAL(38,0)": "decimal(38,0)",
}
_CONFLICTS = "DELTA_CONCURRENT_"
_TOKEN = "commit"
_SESSION = threading.RLock()


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """Names a write so that it happens once: a second one of this or a lower version is dropped."""

    app_id: str
    version: int


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of a table; ``num_rows`` counts the rows it wrote."""

    version: int
    metadata: dict[str, Any]
    num_rows: int


def table_exists(uri: str) -> bool:
    return DeltaTable.is_deltatable(uri)


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    """Open a version without Spark. Raises TableError where it is gone or has a feature that is not allowed."""
    try:
        table = DeltaTable(uri, version=version)
    except TableNotFoundError:
        raise TableError(f"table {uri}: no Delta table there; write it with rec etl first") from None
    except DeltaError as error:
        raise TableError(f"table {uri} version {version}: cannot be opened: {' '.join(str(error).split())}") from None
    refuse_features(uri, table)
    return table


def refuse_features(uri: str, table: DeltaTable) -> None:
    """Raise TableError naming a feature under which plain readers would see other rows than Delta does."""
    protocol = table.protocol()
    features = {*(protocol.reader_features or []), *(protocol.writer_features or [])}
    settings = table.metadata().configuration
    if settings.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if settings.get("delta.enableDeletionVectors", "false") == "true":
        features.add("deletionVectors")
    refused = sorted(features - ALLOWED_FEATURES)
    if refused:
        raise TableError(
            f"table {uri}: feature {refused[0]!r} is on, allowed are {', '.join(sorted(ALLOWED_FEATURES))}; "
            f"copy the rows into a table without it"
        )


@dataclass(frozen=True)
class TableColumn:
    """A column of a table to create; ``sql_type`` as in Spark's DDL."""

    name: str
    sql_type: str
    nullable: bool = True


def create_table(uri: str, columns: Iterable[TableColumn], partition_by: Sequence[str]) -> None:
    """Create the table where there is none, without Spark. Raises TableError for a feature that is not allowed."""
    if not table_exists(uri):
        fields = [Field(c.name, PrimitiveType(_DELTA_TYPES[c.sql_type]), nullable=c.nullable) for c in columns]
        try:
            DeltaTable.create(
                uri,
                Schema(fields),
                mode="ignore",
                partition_by=list(partition_by),
                configuration=dict(PROPERTIES),
            )
        except TableNotFoundError as error:
            reason = " ".join(str(error).split())
            raise TableError(f"table {uri}: its folder cannot be made ({reason}); check the root") from None
    open_table(uri)


def table_version(uri: str) -> int:
    """Return the newest version, -1 where there is no table."""
    return open_table(uri).version() if table_exists(uri) else -1


def partitions(uri: str, version: int | None = None) -> list[dict[str, str]]:
    return open_table(uri, version).partitions() if table_exists(uri) else []


def commits(uri: str, since: int = -1, until: int | None = None) -> Iterator[Commit]:
    """Yield the commits after version ``since`` up to ``until``, newest first."""
    # Always of the newest version: delta-rs numbers the history of an older one as if it ended there.
    table = open_table(uri)
    last = table.version() if until is None else until
    for entry in table.history():
        if since < entry["version"] <= last:
            yield Commit(
                version=entry["version"],
                metadata=_parsed(entry.get("userMetadata")),
                num_rows=int(entry.get("operationMetrics", {}).get("numOutputRows", 0)),
            )


def commit(uri: str, write: Callable[[str], None], metadata: Mapping[str, Any]) -> Commit | None:
    """Run a write with the userMetadata it is handed and return its commit, None where Delta dropped it.

    Raises ConcurrentWriteError where another writer committed first.
    """
    token = uuid.uuid4().hex
    # What takes no writer option is set on the session: no other commit of this process may see it.
    with _SESSION, conflicts_named(uri):
        since = table_version(uri)
        write(json.dumps({**metadata, _TOKEN: token}, sort_keys=True))
    for found in commits(uri, since):
        if found.metadata.get(_TOKEN) == token:
            log.debug("%s: version %d", uri, found.version)
            return found
    return None


def write_frame(
    uri: str,
    frame: "DataFrame",
    metadata: Mapping[str, Any],
    transaction: Transaction | None = None,
    replace_where: str | None = None,
    merge_schema: bool = False,
) -> Commit | None:
    """Append a frame, or put it in the place of the rows that ``replace_where`` tells, in one commit."""

    def write(user_metadata: str) -> None:
        writer = frame.write.format("delta").mode("overwrite" if replace_where else "append")
        writer = writer.option("userMetadata", user_metadata).option("mergeSchema", str(merge_schema).lower())
        if replace_where:
            writer = writer.option("replaceWhere", replace_where)
        if transaction:
            writer = writer.option("txnAppId", transaction.app_id).option("txnVersion", transaction.version)
        writer.save(uri)

    return commit(uri, write, metadata)


def delete_rows(spark: "SparkSession", uri: str, condition: str, metadata: Mapping[str, Any]) -> None:
    """Delete the rows of a condition over partition columns: no file is rewritten."""
    from delta.tables import DeltaTable as SparkTable

    def write(user_metadata: str) -> None:
        with session_settings(spark, {"spark.databricks.delta.commitInfo.userMetadata": user_metadata}):
            SparkTable.forPath(spark, uri).delete(condition)

    commit(uri, write, metadata)


@contextmanager
def conflicts_named(uri: str) -> Iterator[None]:
    """Turn Delta's conflict of two writers into ConcurrentWriteError; both sides of the bridge raise it differently."""
    try:
        yield
    except Exception as error:
        if _CONFLICTS not in str(error) and "DELTA_METADATA_CHANGED" not in str(error):
            raise
        raise ConcurrentWriteError(f"table {uri}: another run committed first; run it again") from error


@contextmanager
def session_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Set session confs for what takes no writer option, and put back what was there."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        content = json.loads(text or "{}")
    except json.JSONDecodeError:
        # Somebody else's commit: a note in plain words.
        return {}
    return content if isinstance(content, dict) else {}
