"""Lines to rows in two steps, so that the usual line meets little code.

One pattern tells a plainly good line, whose values are taken at once. The few others are laid aside as text and go
through every check there is, in a query of their own: the compiler never sees those checks beside the usual work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.schema import FeatureSchema
from rec.etl.delta import session_settings
from rec.etl.layout import Layout
from rec.etl.rows import HEADER, PADDED, key_sql, literal, outcome_sql, plain_sql
from rec.etl.scan import escape, union
from rec.etl.staging import PARTITIONED_WRITE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST, _ODD = "first", "odd"
_PLAIN = f"{_FIRST}/plain=true"


@dataclass(frozen=True)
class LineGroup:
    """Lines of one layout: ``frame`` has ``row_key``, ``line`` without its end, ``fields`` of it, and ``day``."""

    frame: "DataFrame"
    layout: Layout
    utf8: bool


@dataclass(frozen=True)
class Parser:
    """How lines become rows. ``day_column`` names the field that ``day`` was made from, where there is one."""

    schema: FeatureSchema
    pad_right: bool
    day_column: str | None

    def made_by(self, layout: Layout) -> Any:
        """Return the JSON value that, with a line, decides its row."""
        return [self._plain(layout), self._outcome(layout), self._values(layout)]

    def write(self, groups: Sequence[LineGroup], folder: Path) -> None:
        """Write the parsed lines of all groups below a folder."""
        spark = groups[0].frame.sparkSession
        first = union([self._first(group, k) for k, group in enumerate(groups)])
        with session_settings(spark, PARTITIONED_WRITE):
            first.write.partitionBy("plain", "day").parquet(str(folder / _FIRST))
            if (folder / _FIRST / "plain=false").exists():
                lines = "row_key BIGINT, line STRING, group INT, plain BOOLEAN, day INT"
                odd = spark.read.schema(lines).parquet(escape(str(folder / _FIRST))).where("NOT plain")
                checked = [self._checked(odd.where(f"group = {k}"), group) for k, group in enumerate(groups)]
                union(checked).write.partitionBy("day").parquet(str(folder / _ODD))

    def read(self, spark: "SparkSession", folder: Path) -> "DataFrame":
        """Return the lines that ``write`` laid down, as BinnedLines has them."""
        types = [f"{c.name} {'INT' if c.role == 'label' else 'BIGINT'}" for c in self.schema.columns]
        columns = ["row_key", "day", "_outcome", "_text", *self.schema.names]
        parts = []
        if (folder / _PLAIN).exists():
            plain = spark.read.schema(", ".join(["row_key BIGINT", *types, "day INT"]))
            nothing = ["CAST(NULL AS STRING) AS _outcome", "CAST(NULL AS STRING) AS _text"]
            parts.append(plain.parquet(escape(str(folder / _PLAIN))).selectExpr("*", *nothing).select(*columns))
        if (folder / _ODD).exists():
            odd = spark.read.schema(", ".join(["row_key BIGINT", "_outcome STRING", "_text STRING", *types, "day INT"]))
            parts.append(odd.parquet(escape(str(folder / _ODD))).select(*columns))
        return union(parts)

    def _first(self, group: LineGroup, number: int) -> "DataFrame":
        told = group.frame.selectExpr("*", f"{self._plain(group.layout)} AS plain")
        kept = "CASE WHEN NOT plain THEN line END AS line"
        return told.selectExpr("row_key", kept, f"{number} AS group", *self._values(group.layout), "plain", "day")

    def _checked(self, odd: "DataFrame", group: LineGroup) -> "DataFrame":
        fields = odd.selectExpr("row_key", "line", "day", fields_sql(group.layout))
        binned = fields.selectExpr("*", f"{self._outcome(group.layout)} AS _outcome")
        text = "line" if group.utf8 else "MAKE_VALID_UTF8(line)"
        # The text of a line that is a row is in its values.
        kept = f"CASE WHEN _outcome NOT IN ('{PADDED}', '{HEADER}') THEN {text} END AS _text"
        return binned.selectExpr("row_key", "_outcome", kept, *self._values(group.layout), "day")

    def _plain(self, layout: Layout) -> str:
        return plain_sql(layout, self.day_column)

    def _outcome(self, layout: Layout) -> str:
        return outcome_sql(layout, pad_right=self.pad_right, day_column=self.day_column)

    def _values(self, layout: Layout) -> list[str]:
        return [f"{key_sql(column, layout)} AS {column.name}" for column in self.schema.columns]


def fields_sql(layout: Layout) -> str:
    """Return SQL for the fields of ``line``."""
    return f"SPLIT(line, {literal(layout.separator)}, -1) AS fields"
