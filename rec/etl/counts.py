"""Counts and statistics of a day's raw values, and reading them back for a fit."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rec.core.schema import Column, FeatureSchema
from rec.etl.attempts import with_attempt
from rec.etl.delta import write_frame
from rec.etl.lake import Lake
from rec.etl.scan import union
from rec.ops.chain import Chain
from rec.ops.op import FittedOp, NoState
from rec.ops.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = {
    "counts": ("`column`", "key", "value", "CAST(`count` AS BIGINT) AS `count`"),
    "statistics": ("`column`", "name", "value"),
}
_STORED = {"counts": ("column", "key", "value", "count"), "statistics": ("column", "name", "value")}


def fitted_op(chain: Chain) -> tuple[int, FittedOp] | None:
    """Return the place and the operator that a chain fits, None where it learns nothing."""
    return next(((place, op) for place, op in enumerate(chain.ops) if isinstance(op, FittedOp)), None)


def columns_of(chain: Chain, place: int, schema: FeatureSchema) -> tuple[Column, ...]:
    """Return the chain's columns as its operator at ``place`` sees them."""
    described = chain.describe(schema, [NoState()] * place)
    return tuple(described[name] for name in chain.names)


def append_counts(
    frame: "DataFrame",
    schema: FeatureSchema,
    pipeline: Pipeline,
    lake: Lake,
    run_id: str,
    attempts: Mapping[int, int],
) -> None:
    """Count the attempts' days in one pass for each kind of operator and append the rows, a table's in one commit."""
    wanted: dict[type[FittedOp], list[Column]] = {}
    for chain in pipeline.chains:
        found = fitted_op(chain)
        if found:
            frame = chain.transform(frame, schema, [NoState()] * found[0])
            wanted.setdefault(type(found[1]), []).extend(columns_of(chain, found[0], schema))
    days = frame.where(f"day IN ({', '.join(str(day) for day in sorted(attempts))})")
    for table in sorted({op.statistics_table for op in wanted}):
        parts = [op.count(days, tuple(columns)) for op, columns in wanted.items() if op.statistics_table == table]
        rows = with_attempt(union(parts), attempts, _COLUMNS[table])
        write_frame(lake.create(table), rows, {"run_id": run_id})


def carry_counts(
    spark: "SparkSession", pipeline: Pipeline, lake: Lake, run_id: str, moves: Mapping[int, tuple[int, int]]
) -> None:
    """Append the counts of an attempt again under another, {day: (from, to)}: the same input with another state."""
    for table in counted_tables(pipeline):
        rows = lake.read(spark, table, {day: move[0] for day, move in moves.items()})
        targets = {day: move[1] for day, move in moves.items()}
        columns = [f"`{name}`" for name in _STORED[table]]
        write_frame(lake.uri(table), with_attempt(rows.drop("attempt"), targets, columns), {"run_id": run_id})


def counted_days(pipeline: Pipeline, lake: Lake, attempts: Mapping[int, int]) -> set[int]:
    """Return the days whose attempt every table of counts holds."""
    held = [lake.attempts(table) for table in counted_tables(pipeline)]
    return {day for day, attempt in attempts.items() if all((day, attempt) in pairs for pairs in held)}


def counted_tables(pipeline: Pipeline) -> list[str]:
    found = [fitted_op(chain) for chain in pipeline.chains]
    return sorted({op.statistics_table for _, op in filter(None, found)})
