"""A source of raw rows: what a stage reads, with the account of every line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rec.core.config import parse_config
from rec.core.errors import ConfigError, DayError
from rec.core.schema import FeatureSchema
from rec.core.tables import Days
from rec.etl.config import MAX_QUARANTINE_FRACTION, SourceConfig
from rec.etl.intake import SourceFile
from rec.etl.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Source:
    """Raw rows and where each came from.

    ``frame``: the schema's columns (label INT, null where unlabelled; dense BIGINT or DOUBLE, sparse STRING or BIGINT,
    null where missing), ``row_key`` BIGINT = position in ``files`` · 2⁴⁰ + line number from 1, and ``day`` INT.
    ``keyed``: the same rows for counting and encoding: a hex32 value is the number it was parsed to, if it was.
    ``quarantine``: ``file`` (position), ``file_name``, ``line``, ``text``, ``reason``, ``day`` (or null), ``row_key``.
    """

    frame: "DataFrame"
    keyed: "DataFrame"
    schema: FeatureSchema
    ledger: Ledger
    quarantine: "DataFrame"
    files: tuple[SourceFile, ...]
    max_quarantine_fraction: float = MAX_QUARANTINE_FRACTION
    # What decides rows and days beside the files' bytes: part of a day's input digest.
    settings: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Count every line. Raises InputError where bins don't add up, QuarantineLimitError above the limit."""
        self.ledger.check_quarantine(self.max_quarantine_fraction, self.quarantine)

    def check_days(self, days: Days) -> None:
        """Raise DayError for a day that holds no row."""
        held = self.ledger.days
        for name in type(days).model_fields:
            for day in getattr(days, name):
                if day not in held:
                    raise DayError(f"days.{name}: day {day} holds no row; the source has days {_shown(held)}")


def _shown(days: tuple[int, ...]) -> str:
    shown = [str(day) for day in days]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "…", *shown[-5:]])


def read_criteo(
    spark: "SparkSession",
    path: str | Path,
    *,
    day: dict[str, Any],
    pad_right: bool = False,
    max_quarantine_fraction: float = MAX_QUARANTINE_FRACTION,
    work_dir: str | Path | None = None,
) -> Source:
    """Read click logs as text: label, I1 …, C1 … separated by tabs, with or without label, or with a header line.

    ``path`` is a file, a folder or a glob; ``day`` as in rec.etl.config.DayRule. ``pad_right`` takes lines whose last
    columns are cut off as missing there. Parsed lines are kept below ``work_dir``, which every executor must reach, for
    later reads of the same files; what nobody reads for a week is removed.
    """
    given = {"layout": "criteo", "day": day, "pad_right": pad_right}
    return _read(spark, path, given, max_quarantine_fraction, work_dir)


def read_parquet(
    spark: "SparkSession",
    path: str | Path,
    *,
    day: dict[str, Any],
    columns: dict[str, Any],
    max_quarantine_fraction: float = MAX_QUARANTINE_FRACTION,
    work_dir: str | Path | None = None,
) -> Source:
    """Read raw Parquet: ``columns`` as in rec.etl.config.ParquetColumns, such as
    ``{"label": "click", "dense": ["price"], "sparse": {"user": "int64", "city": "string"}}``."""
    given = {"layout": "parquet", "day": day, "columns": columns}
    return _read(spark, path, given, max_quarantine_fraction, work_dir)


def _read(
    spark: "SparkSession", path: str | Path, given: dict[str, Any], fraction: float, work_dir: str | Path | None
) -> Source:
    content = {**given, "path": str(path), "max_quarantine_fraction": fraction, "work_dir": work_dir and str(work_dir)}
    return read_source(spark, parse_config(SourceConfig, content, "source"))


def read_source(spark: "SparkSession", config: SourceConfig) -> Source:
    """Measure a source's files, parse its lines and return the rows.

    Raises InputError, DayError, SchemaDriftError.
    """
    from rec.etl.parquet import parquet_lines
    from rec.etl.text import text_lines

    _check_session(spark)
    read = text_lines if config.layout == "criteo" else parquet_lines
    lines = read(spark, config)
    settings = config.model_dump(mode="json", exclude={"path", "max_quarantine_fraction", "work_dir"})
    if config.day.lines is not None:
        # A cut's place depends on every file before it, and a fraction's on all.
        settings["files"] = [file.sha256 for file in lines.files]
    return Source(
        frame=lines.rows,
        keyed=lines.keyed,
        schema=lines.schema,
        ledger=Ledger(files=lines.files, schema=lines.schema, lines=lines.frame.drop("_text")),
        quarantine=lines.quarantined,
        files=lines.files,
        max_quarantine_fraction=config.max_quarantine_fraction,
        settings=settings,
    )


def _check_session(spark: "SparkSession") -> None:
    """A cast that raises, or a date of another zone, would give other rows."""
    for key, value in {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}.items():
        if spark.conf.get(key) != value:
            raise ConfigError(f"{key} is {spark.conf.get(key)}; set it to {value}, as rec.spark_session does")
