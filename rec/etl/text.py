"""Click logs as text: every line in its bin, whatever layouts the files have."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.errors import DayError, InputError
from rec.core.schema import Column, FeatureSchema
from rec.etl.binned import BinnedLines, file_names, first_days
from rec.etl.config import SourceConfig
from rec.etl.days import cut_day_sql, date_sql, day_of_path, last_lines
from rec.etl.intake import SourceFile, default_work_dir, find_files, measure_files
from rec.etl.layout import Layout, feature_order
from rec.etl.lines import Intake
from rec.etl.parse import LineGroup, Parser, fields_sql
from rec.etl.scan import FILE_BITS, Place, number_rows, read_lines, write_places
from rec.etl.staging import staged
from rec.etl.unpack import intake_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_STRIP_CR = "CASE WHEN ENDSWITH(line, '\\r') THEN LEFT(line, LENGTH(line) - 1) ELSE line END AS line"


def text_lines(spark: "SparkSession", config: SourceConfig) -> BinnedLines:
    """Measure the files of a text source and put each of their lines into its bin."""
    work_dir = config.work_dir or default_work_dir()
    measure = partial(intake_text, work_dir=work_dir, day_column=config.day.column)
    paths = find_files(config.path)
    log.info("reading %d files of %s", len(paths), config.path)
    intakes: list[Intake] = measure_files(spark, paths, measure)
    if not any(intake.num_lines for intake in intakes):
        raise InputError(f"source {config.path}: {len(intakes)} files, not a line in them; check the path")
    files = tuple(_source_file(intake, config) for intake in intakes)
    cuts = last_lines(config.day.lines, sum(f.num_lines for f in files)) if config.day.lines else []
    schema = _schema(intakes, files, cuts)
    groups = _groups(intakes)
    parser = Parser(schema, config.pad_right, config.day.column)

    def write(folder: Path) -> None:
        log.info("parsing %s lines", f"{sum(f.num_lines for f in files):,}")
        places = {group: _places(members, files) for group, members in groups.items()}
        parser.write([_line_group(spark, config, group, places[group], cuts) for group in groups], folder)

    made_by = [
        [parser.made_by(group.layout), _day_sql(config, group.layout, cuts), _paths(members, files)]
        for group, members in groups.items()
    ]
    folder = staged(files, made_by, work_dir, write)
    names = file_names(spark, files, work_dir)
    return BinnedLines(frame=parser.read(spark, folder), schema=schema, files=files, names=names)


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


def _line_group(
    spark: "SparkSession", config: SourceConfig, group: _Group, places: list[Place], cuts: list[int]
) -> LineGroup:
    lines = read_lines(spark, [place.path for place in places], group.separator)
    table = write_places(spark, lines, places, config.work_dir or default_work_dir())
    numbered = number_rows(lines.selectExpr(_STRIP_CR), ["line", fields_sql(group.layout)], table)
    day = f"{_day_sql(config, group.layout, cuts)} AS day"
    return LineGroup(numbered.selectExpr("_row_key AS row_key", "line", "fields", day), group.layout, group.utf8)


def _paths(members: dict[int, Intake], files: Sequence[SourceFile]) -> list[Any]:
    """Return what of the files' paths is in the rows: positions, and the days they tell."""
    return [[position, files[position].day] for position in sorted(members)]


def _day_sql(config: SourceConfig, layout: Layout, cuts: list[int]) -> str:
    if config.day.column is not None:
        if layout.kind == "empty":
            return "CAST(NULL AS INT)"
        position = [name.lower() for name in layout.names].index(config.day.column.lower())
        return date_sql(f"fields[{position}]", "text")
    return cut_day_sql("_line_of_all", cuts) if config.day.lines is not None else "_path_day"


def _source_file(intake: Intake, config: SourceConfig) -> SourceFile:
    column = config.day.column
    if (
        column
        and intake.layout.kind != "empty"
        and column.lower() not in [name.lower() for name in intake.layout.names]
    ):
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
    # A file of blank lines says nothing of its columns, unless there is no other.
    speaking = [intake.layout.kind != "empty" for intake in intakes]
    named = [frozenset(i.layout.features) if says or not any(speaking) else None for i, says in zip(intakes, speaking)]
    days = first_days(files, named, cuts)
    columns = [Column(name="label", role="label", dtype="int32")]
    for name in sorted(days, key=feature_order):
        if name[0] == "I":
            columns.append(Column(name=name, role="dense", dtype="int64", first_day=days[name]))
        else:
            columns.append(Column(name=name, role="sparse", dtype="string", key="hex32", first_day=days[name]))
    return FeatureSchema(columns=tuple(columns))
