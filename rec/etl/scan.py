"""Reading the lines of text files, each with the number it has in its source file."""

import hashlib
import re
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from rec.core.manifest import write_atomic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_BITS = 40


class Place(BaseModel):
    """Where a scanned file stands in its source.

    A row's ``row_key`` is ``base`` and its position in the scanned file, its number over all files ``lines_before``
    and that position; positions start at 1. ``day`` is set where the path tells it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    base: int
    lines_before: int
    day: int | None


def read_lines(spark: "SparkSession", paths: list[str], separator: int | None) -> "DataFrame":
    """Return the frame of one column ``line`` per line feed.

    With a separator, a byte that occurs nowhere, by the csv reader, which is on the GPU and drops every line that
    trims to nothing; without one by the text reader, which keeps them.
    """
    escaped = [escape(path) for path in paths]
    if separator is None:
        return spark.read.option("lineSep", "\n").text(escaped).withColumnRenamed("value", "line")
    return spark.read.csv(escaped, schema="line STRING", sep=chr(separator), quote="", lineSep="\n")


def write_places(spark: "SparkSession", frame: "DataFrame", places: Sequence[Place], work_dir: str) -> "DataFrame":
    """Write the places of a frame's files as a small Parquet table and return it, by the name Spark calls a file.

    A table, because a frame made of local values is no scan, and so never on the GPU.
    """
    by_path = {place.path: place for place in places}
    names = {name: by_path[unquote(urlparse(name).path)] for name in frame.inputFiles()}
    columns = {
        "_name": pa.array(names, pa.string()),
        "_base": pa.array([p.base for p in names.values()], pa.int64()),
        "_lines_before": pa.array([p.lines_before for p in names.values()], pa.int64()),
        "_path_day": pa.array([p.day for p in names.values()], pa.int32()),
    }
    return small_table(spark, pa.table(columns), work_dir)


def small_table(spark: "SparkSession", table: "pa.Table", work_dir: str) -> "DataFrame":
    """Write a table of a few rows into the work folder, named by its content, and return it as a frame."""
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    content = buffer.getvalue().to_pybytes()
    path = Path(work_dir, "places", f"{hashlib.sha256(content).hexdigest()}.parquet").absolute()
    if not path.exists():
        write_atomic(path, content)
    return spark.read.parquet(escape(str(path)))


def number_rows(frame: "DataFrame", columns: Sequence[str], places: "DataFrame") -> "DataFrame":
    """Return the SQL ``columns`` of a scan's rows with ``_row_key``, ``_line_of_all`` and ``_path_day``.

    A row's position in its file is the number of rows in the file's earlier blocks, which one small aggregate tells,
    and its place in its block: monotonically_increasing_id() rises by one from row to row there.
    """
    origin = (
        "INPUT_FILE_NAME() AS _name",
        "INPUT_FILE_BLOCK_START() AS _block",
        "MONOTONICALLY_INCREASING_ID() AS _id",
    )
    earlier = "OVER (PARTITION BY _name ORDER BY _block ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    blocks = (
        frame.selectExpr(*origin)
        .groupBy("_name", "_block")
        .agg({"_id": "min", "*": "count"})
        .selectExpr("_name", "_block", f"COALESCE(SUM(`count(1)`) {earlier}, 0) - `min(_id)` + 1 AS _shift")
        .join(places.hint("broadcast"), "_name")
    )
    rows = frame.selectExpr(*columns, *origin)
    kept = [column.rsplit(" AS ", 1)[-1] for column in columns]
    return rows.join(blocks.hint("broadcast"), ["_name", "_block"]).selectExpr(
        *kept, "_base + (_id + _shift) AS _row_key", "_lines_before + (_id + _shift) AS _line_of_all", "_path_day"
    )


def union(frames: "Sequence[DataFrame]") -> "DataFrame":
    """Return the rows of all frames, columns by name."""
    return reduce(lambda a, b: a.unionByName(b), frames)


def escape(path: str) -> str:
    """Return a path that Spark's globbing leaves as it is."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", path)
