"""The vocabulary as a Delta table: ids are only ever added, a refit is one commit.

A fit reads a version, works out what follows from it, and commits with ``txnVersion`` = that version + 1. Of two fits
that read the same version one commit is dropped or refused; its run starts again from what the other left.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rec.core.errors import ConcurrentWriteError
from rec.etl.delta import Commit, Transaction, commit, open_table, session_settings, table_version, write_frame
from rec.etl.lake import Lake
from rec.ops.categorify import Categorify
from rec.ops.entries import sorted_keys, with_arrays
from rec.ops.lookup import broadcast_heads
from rec.ops.op import State, text_literal
from rec.ops.pipeline import FittedPipeline
from rec.ops.vocabulary import TableState, VocabularyState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_COLUMNS = ("column", "id", "value", "key", "count", "first_day", "last_day", "admitted_state", "retired_state")


def known_entries(lake: Lake, spark: "SparkSession", version: int, names: list[str]) -> "DataFrame | None":
    """Return a version's entries of some columns, None where it has none: told by the log, without a query."""
    held = {partition["column"] for partition in open_table(lake.uri("vocabulary"), version).partitions()}
    return entries_at(lake, spark, version, names) if held & set(names) else None


def entries_at(lake: Lake, spark: "SparkSession", version: int, names: list[str]) -> "DataFrame":
    table = spark.read.format("delta").option("versionAsOf", version).load(lake.uri("vocabulary"))
    return table.where(f"`column` IN ({', '.join(text_literal(name) for name in names)})")


def commit_entries(
    lake: Lake, entries: "DataFrame", known: "DataFrame | None", version: int, metadata: dict[str, Any]
) -> int:
    """Bring the table from ``version`` to ``entries``; return the version that holds them.

    ``metadata`` holds the run id and the state id. Raises ConcurrentWriteError where another fit was first.
    """
    uri = lake.uri("vocabulary")
    admitted = f"coalesce(admitted_state, {text_literal(metadata['state_id'])}) AS admitted_state"
    rows = entries.selectExpr(*[admitted if name == "admitted_state" else f"`{name}`" for name in _COLUMNS])
    transaction = Transaction(app_id="vocabulary", version=version + 1)
    if known is None:
        done = write_frame(uri, rows, metadata, transaction)
    elif not _differs(rows, known):
        log.info("%s: nothing to add or change in version %d", uri, version)
        return version
    else:
        done = _merge(entries.sparkSession, uri, rows, metadata, transaction)
    if done is None:
        raise ConcurrentWriteError(f"table {uri}: another fit committed version {version + 1} first; run it again")
    return done.version


def attach(state: State, op: Categorify, lake: Lake, spark: "SparkSession", version: int) -> VocabularyState:
    """Return the state with its table, and with the arrays of the columns within the operator's limits."""
    assert isinstance(state, VocabularyState)
    entries = entries_at(lake, spark, version, list(state.columns))
    sizes = {name: column.num_values for name, column in state.columns.items()}
    heads = broadcast_heads(sizes, op.broadcast_max_values)
    table = TableState(lake.uri("vocabulary"), version, sum(sizes.values()))
    small = [name for name in state.columns if heads[name] is None]
    return with_arrays(replace(state, table=table), entries, small)


def with_all_arrays(fitted: FittedPipeline) -> FittedPipeline:
    """Return the pipeline with the arrays of every column, large ones read from their table without Spark."""
    states = tuple(tuple(_completed(state) for state in row) for row in fitted.states)
    return replace(fitted, states=states)


def _completed(state: State) -> State:
    if not isinstance(state, VocabularyState) or state.table is None:
        return state
    table = open_table(state.table.uri, state.table.version)
    columns = dict(state.columns)
    for name, column in state.columns.items():
        if column.keys is None:
            wanted = ["key", "value", "id", "retired_state"]
            rows = table.to_pyarrow_table(columns=wanted, partitions=[("column", "=", name)])
            rows = rows.filter(rows.column("retired_state").is_null())
            binary = rows.set_column(1, "value", rows.column("value").cast("string").cast("binary"))
            columns[name] = replace(column, keys=sorted_keys(column.kind, binary))
    return replace(state, columns=columns)


def _differs(rows: "DataFrame", known: "DataFrame") -> bool:
    compared = [f"`{name}`" for name in _COLUMNS if name != "admitted_state"]
    # A count, not isEmpty: the limit behind that is no GPU operator.
    return rows.selectExpr(*compared).exceptAll(known.selectExpr(*compared)).count() > 0


def _merge(
    spark: "SparkSession", uri: str, rows: "DataFrame", metadata: dict[str, Any], transaction: Transaction
) -> Commit | None:
    from delta.tables import DeltaTable

    changed = {name: f"fitted.`{name}`" for name in ("count", "last_day", "retired_state")}
    settings = {
        "spark.databricks.delta.write.txnAppId": transaction.app_id,
        "spark.databricks.delta.write.txnVersion": str(transaction.version),
    }

    def write(user_metadata: str) -> None:
        with session_settings(spark, {**settings, "spark.databricks.delta.commitInfo.userMetadata": user_metadata}):
            merge = (
                DeltaTable.forPath(spark, uri)
                .alias("held")
                .merge(rows.alias("fitted"), "held.`column` = fitted.`column` AND held.value = fitted.value")
            )
            merge.whenMatchedUpdate(set={f"`{name}`": text for name, text in changed.items()}).whenNotMatchedInsert(
                values={f"`{name}`": f"fitted.`{name}`" for name in _COLUMNS}
            ).execute()

    return commit(uri, write, metadata)


def current_version(lake: Lake) -> int:
    """Return the newest version, of an empty table where there was none."""
    return table_version(lake.create("vocabulary"))
