"""Scores of a file's rows from a running server, as a CSV file that leads back to each line."""

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.config import local_path
from rec.core.errors import ServingError
from rec.etl.config import DayRule, SourceConfig
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


def score_file(spark: "SparkSession", config: SourceConfig, rows: Path, serve: ServeConfig, out: Path) -> int:
    """Score every row of ``rows``, read as the recipe reads its source, and return their number.

    ``out`` appears when it is whole. Raises ServingError where no server runs, QuarantineLimitError for bad lines.
    """
    url, out = server_url(serve), Path(local_path(out))
    # Which day a row belongs to plays no part in its score: all of them are one.
    source = read_source(spark, config.model_copy(update={"path": str(rows), "day": DayRule(lines=(1,))}))
    source.check()
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f".{out.name}.{os.getpid()}")
    num_rows = 0
    try:
        with open(partial, "w", newline="", encoding="utf-8") as file, Client(url, serve.model_name) as client:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for table in sliced(source.frame, _first_keys(source)):
                columns, row_key_B = raw_columns(table, client.state.raw)
                assert row_key_B is not None
                scores = client.score(columns, batch_size=BATCH_ROWS)
                paths = [source.files[position].path for position in row_key_B >> FILE_BITS]
                writer.writerows(zip(paths, row_key_B & (2**FILE_BITS - 1), scores.prob_B, scores.logit_B))
                num_rows += len(scores)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
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
