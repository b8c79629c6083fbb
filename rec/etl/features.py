"""Opening a feature table without Spark."""

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from rec.core.errors import DayError, SchemaDriftError, TableError
from rec.core.schema import Column, FeatureSchema
from rec.core.tables import FeatureTable
from rec.etl.delta import open_table, table_exists
from rec.etl.lake import Lake, VisibleDay
from rec.ops.pipeline import FittedPipeline, Pipeline


def open_features(root: str | Path, version: int | None = None, days: Iterable[int] | None = None) -> FeatureTable:
    """Return a version of the feature table under ``root``: the days asked for, or all.

    Raises TableError where there is no such version, where a file of it was removed, and where its days were not all
    encoded with one state; DayError for a day it does not hold.
    """
    lake = Lake(root)
    uri = lake.uri("features")
    table = open_table(uri, version)
    visible = {day: shown for day, shown in lake.visible(table.version()).items() if shown.num_rows}
    wanted = sorted(set(days)) if days is not None else sorted(visible)
    absent = [day for day in wanted if day not in visible]
    if absent:
        raise DayError(f"{uri} version {table.version()}: day {absent[0]} is not in it; it holds {sorted(visible)}")
    if not wanted:
        raise TableError(f"{uri} version {table.version()}: holds no day yet; write it with rec etl")
    shown = [visible[day] for day in wanted]
    state_id = _one_state(uri, shown)
    _refuse_removed(uri, table, wanted)
    return FeatureTable(
        uri=uri,
        version=table.version(),
        schema=FittedPipeline.load(lake.state_folder(state_id)).encoded_schema,
        num_rows=sum(day.num_rows for day in shown),
        days=tuple(wanted),
        state_id=state_id,
    )


def _one_state(uri: str, shown: list[VisibleDay]) -> str:
    by_state: dict[str, list[int]] = {}
    for day in shown:
        by_state.setdefault(day.state_id, []).append(day.day)
    if len(by_state) > 1:
        (state, days), (other, other_days) = list(by_state.items())[:2]
        raise TableError(
            f"{uri}: days {days} were encoded with state {state[:12]}, days {other_days} with {other[:12]}, whose ids "
            "differ; run rec etl over all of these days once more, or name days of one state"
        )
    return next(iter(by_state))


def _refuse_removed(uri: str, table: DeltaTable, days: list[int]) -> None:
    # Spark counts rows from the log: without this look, a run over unchanged input would say that all is well.
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        if action["partition.day"] in days and not os.path.isfile(os.path.join(uri, action["path"])):
            raise TableError.of_removed_file(uri, table.version(), action["path"])


def check_root(lake: Lake, pipeline: Pipeline, schema: FeatureSchema) -> None:
    """Raise what a run over a raw schema would be refused for under a root, as far as no row has to be read for it.

    Told before a run appends a row. SchemaDriftError where a feature that days there were made of is gone, or has
    another type; a feature that was added is no drift. TableError for a table with a feature that is not allowed.
    """
    selected = pipeline.select(schema)
    lake.check_tables()
    days_of: dict[str, list[int]] = {}
    for shown in lake.visible().values():
        days_of.setdefault(shown.state_id, []).append(shown.day)
    for state_id, days in days_of.items():
        if lake.state_folder(state_id).is_dir():
            fitted = FittedPipeline.load(lake.state_folder(state_id))
            held = fitted.pipeline.select(fitted.schema)
            _refuse_gone(lake.root, days, held, selected, schema)
            _refuse_retyped(lake.root, days, held, selected)
    check_columns(lake.uri("features"), selected)


def _refuse_gone(root: str, days: list[int], held: FeatureSchema, named: FeatureSchema, given: FeatureSchema) -> None:
    for column in (*held.dense, *held.sparse):
        if column.name not in given.names:
            raise SchemaDriftError(
                f"column {column.name!r} is gone from the source, days {days} under {root} were made with it; "
                "supply it, empty where nothing is known, or use another root"
            )
        if column.name not in named.names:
            raise SchemaDriftError(
                f"column {column.name!r} is in the source, but the recipe's features no longer name it, days {days} "
                f"under {root} were made with it; name it, or use another root"
            )


def _refuse_retyped(root: str, days: list[int], held: FeatureSchema, named: FeatureSchema) -> None:
    for column in (*held.dense, *held.sparse):
        found, was = (f"{c.dtype} ({c.key})" if c.key else c.dtype for c in (named[column.name], column))
        if found != was:
            raise SchemaDriftError(
                f"column {column.name!r} is {found} in the source, days {days} under {root} were made of {was}; "
                "write it with that type, or use another root"
            )


def check_columns(uri: str, schema: FeatureSchema) -> None:
    """Raise SchemaDriftError where a table's column is gone from the schema or has another type there.

    The schema is the encoded one, or the raw one: then how wide a column's ids will be is not known yet.
    """
    if not table_exists(uri):
        return
    types = {"integer": "int32", "long": "int64", "float": "float32", "double": "float64", "string": "string"}
    wanted = {c.name: _table_types(c) for c in schema.columns} | {"row_key": ("int64",), "day": ("int32",)}
    for held in open_table(uri).schema().fields:
        dtype = types.get(str(held.type.type) if hasattr(held.type, "type") else str(held.type), str(held.type))
        if held.name not in wanted:
            raise SchemaDriftError(
                f"{uri}: column {held.name!r} is gone from the pipeline; supply it or use another root"
            )
        if dtype not in wanted[held.name]:
            now = " or ".join(wanted[held.name])
            raise SchemaDriftError(f"{uri}: column {held.name!r} is {dtype} there and {now} now; use another root")


def _table_types(column: Column) -> tuple[str, ...]:
    if column.role == "dense":
        return ("float32",)
    if column.role == "sparse" and column.num_embeddings is None:
        return ("int32", "int64")
    return (column.dtype,)
