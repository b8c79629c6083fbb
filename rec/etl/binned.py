"""The lines of a source with their outcome: what the text and the Parquet reader both make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rec.core.errors import SchemaDriftError
from rec.core.schema import FeatureSchema
from rec.etl.intake import SourceFile
from rec.etl.rows import HEADER, PADDED
from rec.etl.scan import FILE_BITS, small_table
from rec.ops.admission import hex_text
from rec.ops.op import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class BinnedLines:
    """Every line of a source and its bin.

    ``frame``: ``row_key``, ``day``, ``_outcome`` (null for accepted, a bin, or the reason of a quarantine), ``_text``
    and the schema's columns, which hold values where the line is a row; a hex32 value is text or its number.
    """

    frame: "DataFrame"
    schema: FeatureSchema
    files: tuple[SourceFile, ...]
    names: "DataFrame"

    @property
    def keyed(self) -> "DataFrame":
        """The rows with hex32 values as numbers where the frame holds them so: what is counted and encoded."""
        kept = self.frame.where(f"COALESCE(_outcome, '{PADDED}') = '{PADDED}'")
        return kept.select(*(f"`{name}`" for name in self.schema.names), "row_key", "day")

    @property
    def rows(self) -> "DataFrame":
        """The rows with every value as the source has it."""
        types = dict(self.frame.dtypes)
        numbers = {c.name for c in self.schema.columns if c.key == "hex32" and types[c.name] == "bigint"}
        return self.keyed.selectExpr(
            *(f"{hex_text(quoted(n))} AS {quoted(n)}" if n in numbers else quoted(n) for n in self.keyed.columns)
        )

    @property
    def quarantined(self) -> "DataFrame":
        lines = self.frame.where(f"_outcome NOT IN ('{PADDED}', '{HEADER}')").selectExpr(
            f"CAST(SHIFTRIGHT(row_key, {FILE_BITS}) AS INT) AS file",
            f"row_key & {2**FILE_BITS - 1} AS line",
            "_text AS text",
            "_outcome AS reason",
            "day",
            "row_key",
        )
        named = lines.join(self.names.hint("broadcast"), "file")
        return named.select("file", "file_name", "line", "text", "reason", "day", "row_key")


def file_names(spark: "SparkSession", files: Sequence[SourceFile], work_dir: str) -> "DataFrame":
    """Return the frame of ``file`` (position) and ``file_name``."""
    columns = {"file": pa.array(range(len(files)), pa.int32()), "file_name": [file.path for file in files]}
    return small_table(spark, pa.table(columns), work_dir)


def first_days(
    files: Sequence[SourceFile], named: Sequence[frozenset[str] | None], cuts: Sequence[int]
) -> dict[str, int | None]:
    """Return the columns that files name, each with its first day where the earliest file lacks it; None names none.

    Files go by the day of their path, then in path order. A day that only rows tell is None. Raises SchemaDriftError
    where a file lacks a column that an earlier one has.
    """
    columns = {k: names for k, names in enumerate(named) if names is not None and files[k].num_lines}
    order = sorted(columns, key=lambda k: (files[k].day or 0, k))
    starts: dict[str, int] = {}
    for k in order:
        gone = sorted(starts.keys() - columns[k])
        if gone:
            raise SchemaDriftError(
                f"{files[k].path}: column {gone[0]!r} is gone, {files[starts[gone[0]]].path} has it; "
                "supply it, empty where nothing is known"
            )
        starts.update(dict.fromkeys(columns[k] - starts.keys(), k))
    return {name: None if k == order[0] else _day_of_file(files, k, cuts) for name, k in starts.items()}


def _day_of_file(files: Sequence[SourceFile], position: int, cuts: Sequence[int]) -> int | None:
    if not cuts:
        return files[position].day
    first_line = sum(file.num_lines for file in files[:position]) + 1
    return sum(first_line > cut for cut in cuts)
