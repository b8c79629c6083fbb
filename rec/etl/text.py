"""Click logs as text: every line in its bin, whatever layouts the files have."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING

from rec.core.errors import DayError, InputError
from rec.core.schema import Column, FeatureSchema
from rec.etl.binned import BinnedLines, file_names, first_days
from rec.etl.config import SourceConfig
from rec.etl.days import cut_day_sql, date_sql, day_of_path, last_lines
from rec.etl.intake import SourceFile, default_work_dir, find_files, measure_files
from rec.etl.layout import Layout, feature_order
from rec.etl.lines import Intake
from rec.etl.rows import HEADER, PADDED, key_sql, literal, outcome_sql
from rec.etl.scan import FILE_BITS, Place, number_rows, read_lines, write_places
from rec.etl.staging import staged
from rec.etl.unpack import intake_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_STRIP_CR = "CASE WHEN ENDSWITH(line, '\\r') THEN LEFT(line, LENGTH(line) - 1) ELSE line END AS line"


def text_lines(spark: "SparkSession", config: SourceConfig) -> BinnedLines:
    """Measure the files of a text source and put each of their lines into its bin."""
    work_dir = config.work_dir or default_work_dir()
    measure = partial(intake_text, work_dir=work_dir, day_column=config.day.column)
    intakes: list[Intake] = measure_files(spark, find_files(config.path), measure)
    if not any(intake.num_lines for intake in intakes):
        raise InputError(f"source {config.path}: {len(intakes)} files, not a line in them; check the path")
    files = tuple(_source_file(intake, config) for intake in intakes)
    cuts = last_lines(config.day.lines, sum(f.num_lines for f in files)) if config.day.lines else []
    schema = _schema(intakes, files, cuts)
    groups = _groups(intakes).items()
    frames = [_group_lines(spark, config, group, _places(members, files), schema, cuts) for group, members in groups]
    lines = BinnedLines(
        frame=reduce(lambda a, b: a.unionByName(b), frames),
        schema=schema,
        files=files,
        names=file_names(spark, files, work_dir),
    )
    made_by = [[_columns(config, group, schema, cuts), sorted(members)] for group, members in groups]
    return staged(lines, made_by, work_dir)


@dataclass(frozen=True)
class _Group:
    """Files that one scan reads: one layout, one separator byte (None: by the text reader)."""

    layout: Layout
    separator: int | None
    utf8: bool


def _groups(intakes: Sequence[Intake]) -> dict[_Group, dict[int, Intake]]:
    """Return the files with lines by group, each with its position in the source."""
    offered = [intake.csv_separators for intake in intakes if intake.csv_separators]
    common = frozenset.intersection(*offered) if offered else frozenset()
    groups: dict[_Group, dict[int, Intake]] = {}
    for position, intake in enumerate(intakes):
        separator = min(common or intake.csv_separators) if intake.csv_separators else None
        if intake.num_lines:
            groups.setdefault(_Group(intake.layout, separator, intake.utf8), {})[position] = intake
    return groups


def _places(members: dict[int, Intake], files: Sequence[SourceFile]) -> list[Place]:
    places = []
    for position, intake in members.items():
        before = sum(file.num_lines for file in files[:position])
        places += [
            Place(
                path=part.path,
                base=(position << FILE_BITS) + part.first_line - 1,
                lines_before=before + part.first_line - 1,
                day=files[position].day,
            )
            for part in intake.parts
        ]
    return places


def _group_lines(
    spark: "SparkSession",
    config: SourceConfig,
    group: _Group,
    places: list[Place],
    schema: FeatureSchema,
    cuts: list[int],
) -> "DataFrame":
    lines = read_lines(spark, [place.path for place in places], group.separator)
    fields = f"SPLIT(line, {literal(group.layout.separator)}, -1) AS fields"
    table = write_places(spark, lines, places, config.work_dir or default_work_dir())
    numbered = number_rows(lines.selectExpr(_STRIP_CR), ["line", fields], table)
    day, *columns = _columns(config, group, schema, cuts)
    dated = numbered.selectExpr("_row_key AS row_key", "line", "fields", day)
    binned = dated.selectExpr("row_key", "day", "line", *columns)
    text = "line" if group.utf8 else "MAKE_VALID_UTF8(line)"
    # The text of a line that is a row is in its values.
    kept = f"CASE WHEN _outcome NOT IN ('{PADDED}', '{HEADER}') THEN {text} END AS _text"
    return binned.selectExpr("row_key", "day", "_outcome", kept, *schema.names)


def _columns(config: SourceConfig, group: _Group, schema: FeatureSchema, cuts: list[int]) -> list[str]:
    """Return the SQL of a line's day, its outcome and its values."""
    outcome = outcome_sql(group.layout, pad_right=config.pad_right, day_column=config.day.column)
    values = (f"{key_sql(column, group.layout)} AS {column.name}" for column in schema.columns)
    return [f"{_day_sql(config, group.layout, cuts)} AS day", f"{outcome} AS _outcome", *values]


def _day_sql(config: SourceConfig, layout: Layout, cuts: list[int]) -> str:
    if config.day.column is not None:
        position = [name.lower() for name in layout.names].index(config.day.column.lower())
        return date_sql(f"fields[{position}]", "text")
    return cut_day_sql("_line_of_all", cuts) if config.day.lines is not None else "_path_day"


def _source_file(intake: Intake, config: SourceConfig) -> SourceFile:
    column = config.day.column
    if column and intake.num_lines and column.lower() not in [name.lower() for name in intake.layout.names]:
        raise DayError(
            f"{intake.path}: no way to tell the day, no header names day.column {column!r}; "
            "use day.path or day.lines, or add the column"
        )
    return SourceFile(
        path=intake.path,
        sha256=intake.sha256,
        num_bytes=intake.num_bytes,
        modified_ns=intake.modified_ns,
        num_lines=intake.num_lines,
        layout=intake.layout.kind,
        day=day_of_path(config.day.path, intake.path) if config.day.path else None,
        warnings=intake.warnings,
    )


def _schema(intakes: Sequence[Intake], files: Sequence[SourceFile], cuts: list[int]) -> FeatureSchema:
    """Return the columns of all files; ``first_day`` is set on those that the earliest file lacks."""
    days = first_days(files, [frozenset(intake.layout.features) for intake in intakes], cuts)
    columns = [Column(name="label", role="label", dtype="int32")]
    for name in sorted(days, key=feature_order):
        if name[0] == "I":
            columns.append(Column(name=name, role="dense", dtype="int64", first_day=days[name]))
        else:
            columns.append(Column(name=name, role="sparse", dtype="string", key="hex32", first_day=days[name]))
    return FeatureSchema(columns=tuple(columns))
