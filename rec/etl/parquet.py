"""Raw Parquet: every row in its bin, columns by name and role."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from rec.core.errors import InputError, SchemaDriftError
from rec.core.manifest import sha256_file
from rec.core.schema import Column, DType, FeatureSchema
from rec.etl.binned import BinnedLines, file_names, first_days
from rec.etl.config import ParquetColumns, SourceConfig
from rec.etl.days import cut_day_sql, date_sql, day_of_path, last_lines
from rec.etl.intake import SourceFile, default_work_dir, find_files, measure_files
from rec.etl.rows import literal, valid_hex
from rec.etl.scan import FILE_BITS, Place, escape, number_rows, write_places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {
    "integer": "BIGINT",
    "float": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "STRING",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}
# What a role takes: families of types within which a value keeps its meaning from file to file.
_WANTED = {
    "label": ("integer", "boolean"),
    "dense": ("integer", "float"),
    "int64": ("integer",),
    "hex32": ("text",),
    "string": ("text",),
    "day": ("integer", "text", "date", "timestamp"),
}


class _Footer(BaseModel):
    """What one Parquet file says of itself; ``types`` by column: a family, or the name of a type outside them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str
    num_bytes: int
    modified_ns: int
    num_rows: int
    types: dict[str, str]


def read_footer(path: str) -> _Footer:
    """Return a Parquet file's footer. Raises InputError naming a file that is none, or is cut off."""
    before = os.stat(path)
    try:
        with pq.ParquetFile(path) as file:
            types = {field.name: _family(field.type) for field in file.schema_arrow}
            num_rows = file.metadata.num_rows
    except pa.ArrowInvalid as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: not a whole Parquet file ({reason}); write it again") from None
    return _Footer(
        path=path,
        sha256=sha256_file(path),
        num_bytes=before.st_size,
        modified_ns=before.st_mtime_ns,
        num_rows=num_rows,
        types=types,
    )


def _family(kind: "pa.DataType") -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return "integer"
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp"
    families = {
        "float": pa.types.is_float32(kind) or pa.types.is_float64(kind),
        "boolean": pa.types.is_boolean(kind),
        "text": pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind),
        "date": pa.types.is_date32(kind),
    }
    return next((family for family, holds in families.items() if holds), str(kind))


def parquet_lines(spark: "SparkSession", config: SourceConfig) -> BinnedLines:
    """Read the footers of a Parquet source and put each of its rows into its bin."""
    assert config.columns is not None
    work_dir = config.work_dir or default_work_dir()
    footers: list[_Footer] = measure_files(spark, find_files(config.path), read_footer)
    if not any(footer.num_rows for footer in footers):
        raise InputError(f"source {config.path}: {len(footers)} files, not a row in them; check the path")
    files = tuple(_source_file(footer, config) for footer in footers)
    cuts = last_lines(config.day.lines, sum(f.num_lines for f in files)) if config.day.lines else []
    roles = _roles(config)
    types = _types(footers, roles)
    days = first_days(files, [frozenset(footer.types.keys() & types.keys()) for footer in footers], cuts)
    return BinnedLines(
        frame=_binned(spark, config, files, types, cuts),
        schema=_schema(config.columns, types, days),
        files=files,
        names=file_names(spark, files, work_dir),
    )


def _roles(config: SourceConfig) -> list[tuple[str, str]]:
    """Return the columns that are read, each with a kind of value it must hold: that of the day may be a feature."""
    columns = config.columns or ParquetColumns()
    given = [(config.day.column, "day"), (columns.label, "label"), *((name, "dense") for name in columns.dense)]
    return [(name, role) for name, role in (*given, *columns.sparse.items()) if name is not None]


def _types(footers: Sequence[_Footer], roles: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the family of each column that is read.

    Raises SchemaDriftError where no file has it, its role cannot take it, or files differ.
    """
    found: dict[str, tuple[str, str]] = {}
    names = {name for name, _ in roles}
    for footer in footers:
        for column in names & footer.types.keys() if footer.num_rows else ():
            family = footer.types[column]
            first, path = found.setdefault(column, (family, footer.path))
            if family != first:
                raise SchemaDriftError(
                    f"{footer.path}: column {column!r} is {family}, {first} in {path}; write it with one type"
                )
    for column, role in roles:
        if column not in found:
            raise SchemaDriftError(f"source: no file has column {column!r}, read as {role}; correct source.columns")
        family, path = found[column]
        if family not in _WANTED[role]:
            raise SchemaDriftError(
                f"{path}: column {column!r} is {family}, read as {role}, which takes {' or '.join(_WANTED[role])}; "
                "convert it, or correct source.columns"
            )
    return {column: family for column, (family, _) in found.items()}


def _schema(columns: ParquetColumns, types: dict[str, str], days: dict[str, int | None]) -> FeatureSchema:
    found = [Column(name="label", role="label", dtype="int32")]
    for name in columns.dense:
        dense: DType = "int64" if types[name] == "integer" else "float64"
        found.append(Column(name=name, role="dense", dtype=dense, first_day=days[name]))
    for name, key in columns.sparse.items():
        sparse: DType = "int64" if key == "int64" else "string"
        found.append(Column(name=name, role="sparse", dtype=sparse, key=key, first_day=days[name]))
    return FeatureSchema(columns=tuple(found))


def _source_file(footer: _Footer, config: SourceConfig) -> SourceFile:
    return SourceFile(
        path=footer.path,
        sha256=footer.sha256,
        num_bytes=footer.num_bytes,
        modified_ns=footer.modified_ns,
        num_lines=footer.num_rows,
        layout="parquet",
        day=day_of_path(config.day.path, footer.path) if config.day.path else None,
    )


def _binned(
    spark: "SparkSession",
    config: SourceConfig,
    files: Sequence[SourceFile],
    types: dict[str, str],
    cuts: list[int],
) -> "DataFrame":
    columns = config.columns or ParquetColumns()
    quoted = [(f"`{name}`", key) for name, key in columns.sparse.items()]
    places = _places(files)
    declared = ", ".join(f"`{name}` {_SQL_TYPES[family]}" for name, family in types.items())
    frame = spark.read.schema(declared).parquet(*(escape(place.path) for place in places))
    table = write_places(spark, frame, places, config.work_dir or default_work_dir())
    numbered = number_rows(frame, [f"`{name}`" for name in types], table)
    label = f"CAST(`{columns.label}` AS INT)" if columns.label else "CAST(NULL AS INT)"
    sparse = (name if key == "int64" else f"NULLIF({name}, '') AS {name}" for name, key in quoted)
    return numbered.selectExpr("*", f"{_day_sql(config, types, cuts)} AS _day").selectExpr(
        "_row_key AS row_key",
        "_day AS day",
        f"{_outcome_sql(columns, types, config.day.column)} AS _outcome",
        f"{_text_sql(columns, config.day.column)} AS _text",
        f"{label} AS label",
        *(f"`{name}`" for name in columns.dense),
        *sparse,
    )


def _places(files: Sequence[SourceFile]) -> list[Place]:
    places, before = [], 0
    for position, file in enumerate(files):
        if file.num_lines:
            places.append(Place(path=file.path, base=position << FILE_BITS, lines_before=before, day=file.day))
        before += file.num_lines
    return places


def _day_sql(config: SourceConfig, types: dict[str, str], cuts: list[int]) -> str:
    if config.day.column is not None:
        kind = {"integer": "seconds"}.get(types[config.day.column], types[config.day.column])
        return date_sql(f"`{config.day.column}`", kind)
    return cut_day_sql("_line_of_all", cuts) if config.day.lines is not None else "_path_day"


def _outcome_sql(columns: ParquetColumns, types: dict[str, str], day_column: str | None) -> str:
    """Return SQL for the first column of a row that holds no value of its kind, as a reason; null for accepted."""
    cases = []
    if columns.label:
        cases.append((f"CAST(`{columns.label}` AS BIGINT) NOT IN (0, 1)", "label"))
    for name in columns.dense:
        if types[name] == "float":
            cases.append((f"(ISNAN(`{name}`) OR ABS(`{name}`) = CAST('Infinity' AS DOUBLE))", f"type:{name}"))
    for name, key in columns.sparse.items():
        if key == "hex32":
            cases.append((f"NOT (`{name}` = '' OR {valid_hex(f'`{name}`')})", f"cat:{name}"))
    if day_column:
        cases.append(("_day IS NULL", f"day:{day_column}"))
    branches = " ".join(f"WHEN {condition} THEN {literal(reason)}" for condition, reason in cases)
    return f"CASE {branches} END" if cases else "CAST(NULL AS STRING)"


def _text_sql(columns: ParquetColumns, day_column: str | None) -> str:
    """Return SQL for a row as text: its values in the order of the roles, separated by tabs."""
    names = [columns.label, *columns.dense, *columns.sparse, day_column]
    values = (f"COALESCE(CAST(`{name}` AS STRING), '')" for name in names if name)
    return f"CONCAT_WS('\\t', {', '.join(values)})"
