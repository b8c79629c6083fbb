"""Scores of a file's rows from a running server, as a CSV file that leads back to each line."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.config import local_path
from rec.core.errors import ConfigError, ServingError
from rec.core.manifest import aside
from rec.etl.config import DayRule, SourceConfig
from rec.etl.intake import find_files
from rec.etl.scan import FILE_BITS
from rec.etl.source import Source, read_source
from rec.launch.slices import BATCH_ROWS, SLICE_ROWS, sliced
from rec.serve.client import Client
from rec.serve.config import ServeConfig
from rec.serve.control import Control
from rec.serve.frames import raw_columns
from rec.serve.repository import Repository
from rec.serve.server import running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("file", "line", "prob", "logit")


@dataclass(frozen=True)
class Scored:
    """``num_rows`` lines have a score; the others are none of a row, by reason."""

    num_rows: int
    left_out: dict[str, int]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.items())
        left_out = f", {sum(self.left_out.values()):,} left out: {reasons}" if reasons else ""
        return f"{self.num_rows + sum(self.left_out.values()):,} lines: {self.num_rows:,} scored{left_out}"


def score_file(spark: "SparkSession", config: SourceConfig, rows: Path, serve: ServeConfig, out: Path) -> Scored:
    """Score every line of ``rows`` that is a row, read as the recipe reads its source.

    ``out`` appears when it is whole. Raises ServingError where no server runs, QuarantineLimitError for bad lines,
    ConfigError for an ``out`` that is a folder or a file of ``rows``.
    """
    url, out = server_url(serve), Path(local_path(out))
    check_out(rows, out)
    source = read_source(spark, _unlabelled(config).model_copy(update={"path": local_path(rows)}))
    source.check()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = aside(out)
    try:
        num_rows = _write_scores(source, Client(url, serve.model_name), partial)
        os.replace(partial, out)
    except OSError as error:
        if error.filename == str(partial):
            error.filename = str(out)
        raise
    finally:
        if partial.exists():
            partial.unlink()
    num_headers = sum(row.header for row in source.ledger.rows)
    headers = {"header": num_headers} if num_headers else {}
    return Scored(num_rows, {**source.ledger.reasons, **headers})


def _unlabelled(config: SourceConfig) -> SourceConfig:
    """Return the config of rows whose label and day play no part: all of them are one day."""
    columns = config.columns and config.columns.model_copy(update={"label": None})
    return config.model_copy(update={"day": DayRule(lines=(1,)), "columns": columns})


def check_out(rows: Path, out: Path) -> None:
    """Raise ConfigError where scores would take the place of a folder or of the rows they are of."""
    if out.is_dir():
        raise ConfigError(f"{out}: a folder; name the CSV file to write")
    if out.exists() and any(os.path.samefile(out, file) for file in find_files(local_path(rows))):
        raise ConfigError(f"{out}: one of the files of rows, scores would take its place; name another file")


def _write_scores(source: Source, asked: Client, path: Path) -> int:
    num_rows = 0
    with open(path, "w", newline="", encoding="utf-8") as file, asked as client:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for table in sliced(source.frame, _first_keys(source)):
            columns, row_key_B = raw_columns(table, client.state.raw)
            assert row_key_B is not None
            scores = client.score(columns, batch_size=BATCH_ROWS)
            paths = [source.files[position].path for position in row_key_B >> FILE_BITS]
            writer.writerows(zip(paths, row_key_B & (2**FILE_BITS - 1), scores.prob_B, scores.logit_B))
            num_rows += len(scores)
    return num_rows


def server_url(serve: ServeConfig) -> str:
    """Return the address of the server that answers for the recipe. Raises ServingError where none does."""
    if serve.url:
        Control(serve.url, serve.timeout_s).require_live()
        return serve.url
    control = running_server(Repository(serve.repository), serve.timeout_s)
    if control is None:
        raise ServingError(f"no server runs on {serve.repository}; start one: rec serve RECIPE, or set serve.url")
    return control.url


def _first_keys(source: Source) -> list[int]:
    """Return the row keys that the slices of each file begin with."""
    starts = [(position << FILE_BITS, file.num_lines) for position, file in enumerate(source.files)]
    return [start + line for start, num_lines in starts for line in range(1, num_lines + 1, SLICE_ROWS)]
