"""The features stage beside DuckDB and polars on the same rows, in one run: `python bench/etl.py --rows 10000000`.

Every engine reads text of 40 fields, a file a day, counts values over the train days alone, and writes Parquet by day
in a pseudo-random order: label, log(1 + max(x, 0)) as float32 with missing as 0, and ids: 1 missing, 2 rarer than the
threshold or unseen, from 3 on by (count descending, value ascending). The peers hold all rows in memory and do no more
than this; ours also counts every line in a ledger and commits Delta tables.

A run is a process of its own on two threads. Its CPU-seconds are user + system of that process and of all below it, the
start of interpreter and JVM included. Runs of the engines take turns; their outputs must be the same rows.
"""

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from machine import describe

from rec.datasets.criteo_like import CriteoLikeConfig, write_criteo_like

SPARK_CONF = Path(__file__).resolve().parents[1] / "conf/spark/local.conf"
DENSE = [f"I{k}" for k in range(1, 14)]
SPARSE = [f"C{k}" for k in range(1, 27)]
COLUMNS = ["label", *DENSE, *SPARSE]
NUM_DAYS, NUM_TRAIN_DAYS = 5, 4
FREQ_THRESHOLD = 15
MISSING, UNSEEN, FIRST_VALUE = 1, 2, 3
# conf/spark/local.conf has local[2].
NUM_THREADS = 2
_SET_CHILD_SUBREAPER = 36
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def run_reclake(raw: Path, out: Path) -> None:
    import rec

    spark = rec.spark_session(SPARK_CONF)
    # A work folder of this run alone: lines that an earlier one parsed would be found in a shared one.
    clicks = rec.read_criteo(spark, raw / "day_*.tsv", day={"path": r"day_(\d+)"}, work_dir=out / "work")
    dense = clicks.schema.dense >> rec.FillMissing(0) >> rec.Clip(min=0) >> rec.LogOp()
    sparse = clicks.schema.sparse >> rec.Categorify(freq_threshold=FREQ_THRESHOLD)
    fitted = rec.fit_features(clicks, rec.Pipeline(dense, sparse), out, days=range(NUM_TRAIN_DAYS))
    rec.write_features(clicks, fitted)
    spark.stop()


def run_duckdb(raw: Path, out: Path) -> None:
    import duckdb

    database = duckdb.connect()
    database.execute(f"SET threads = {NUM_THREADS}; SET temp_directory = '{out}/spill'")
    types = {"label": "INTEGER"} | dict.fromkeys(DENSE, "BIGINT") | dict.fromkeys(SPARSE, "VARCHAR")
    dense = [f"ln(1 + greatest(coalesce({name}, 0), 0))::FLOAT AS {name}" for name in DENSE]
    sparse = [f"('0x' || {name})::UINTEGER AS {name}" for name in SPARSE]
    form = f"delim='\t', header=false, quote='', escape='', nullstr='', auto_detect=false, columns={types}"
    for day in range(NUM_DAYS):
        database.execute(
            f"{'INSERT INTO raw' if day else 'CREATE TABLE raw AS'} SELECT {day} AS day, label, "
            f"{', '.join([*dense, *sparse])} FROM read_csv('{raw}/day_{day}.tsv', {form})"
        )
    for name in SPARSE:
        database.execute(
            f"CREATE TABLE vocabulary_{name} AS SELECT key, ({FIRST_VALUE - 1} + row_number() OVER (ORDER BY n DESC, "
            f"key))::INTEGER AS id FROM (SELECT {name} AS key, count(*) AS n FROM raw WHERE {name} IS NOT NULL "
            f"AND day < {NUM_TRAIN_DAYS} GROUP BY {name} HAVING count(*) >= {FREQ_THRESHOLD})"
        )
    found = [f"coalesce(vocabulary_{name}.id, {UNSEEN})" for name in SPARSE]
    ids = [f"CASE WHEN raw.{n} IS NULL THEN {MISSING} ELSE {id_} END::INTEGER AS {n}" for n, id_ in zip(SPARSE, found)]
    joins = [f"LEFT JOIN vocabulary_{name} ON raw.{name} = vocabulary_{name}.key" for name in SPARSE]
    selected = ", ".join(["day", "hash(raw.rowid) AS place", "label", *DENSE, *ids])
    database.execute(f"CREATE TABLE encoded AS SELECT {selected} FROM raw {' '.join(joins)}")
    for day, path in _day_files(out):
        rows = f"SELECT {', '.join(COLUMNS)} FROM encoded WHERE day = {day} ORDER BY place"
        database.execute(f"COPY ({rows}) TO '{path}' (FORMAT PARQUET, COMPRESSION snappy)")


def run_polars(raw: Path, out: Path) -> None:
    import polars as pl

    types = {"label": pl.Int32} | dict.fromkeys(DENSE, pl.Int64) | dict.fromkeys(SPARSE, pl.String)
    dense = [pl.col(n).fill_null(0).clip(lower_bound=0).cast(pl.Float64).log1p().cast(pl.Float32) for n in DENSE]
    sparse = [pl.col(n).str.to_integer(base=16, dtype=pl.UInt32) for n in SPARSE]
    days = [
        pl.scan_csv(
            raw / f"day_{day}.tsv", separator="\t", has_header=False, schema=types, quote_char=None
        ).with_columns(*dense, *sparse, pl.lit(day, pl.Int32).alias("day"))
        for day in range(NUM_DAYS)
    ]
    rows = pl.concat(days).collect(engine="streaming")
    train = rows.lazy().filter(pl.col("day") < NUM_TRAIN_DAYS)
    counts = [train.select(key=name).drop_nulls().group_by("key").agg(n=pl.len()) for name in SPARSE]
    kept = [count.filter(pl.col("n") >= FREQ_THRESHOLD).sort("n", "key", descending=[True, False]) for count in counts]
    ids = []
    for name, vocabulary in zip(SPARSE, pl.collect_all(kept)):
        place = pl.int_range(FIRST_VALUE, FIRST_VALUE + len(vocabulary), dtype=pl.Int32, eager=True)
        found = pl.col(name).replace_strict(vocabulary["key"], place, default=UNSEEN, return_dtype=pl.Int32)
        missing = pl.lit(MISSING, pl.Int32)
        ids.append(pl.when(pl.col(name).is_null()).then(missing).otherwise(found).alias(name))
    encoded = rows.with_columns(ids)
    del rows
    for day, path in _day_files(out):
        shuffled = encoded.filter(pl.col("day") == day).drop("day").sample(fraction=1, shuffle=True, seed=day)
        shuffled.write_parquet(path, compression="snappy")


ENGINES: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "duckdb": (run_duckdb, "duckdb"),
    "polars": (run_polars, "polars"),
    "reclake": (run_reclake, "pyspark"),
}


def _day_files(out: Path) -> list[tuple[int, Path]]:
    paths = [(day, out / f"features/day={day}/part.parquet") for day in range(NUM_DAYS)]
    for _, path in paths:
        path.parent.mkdir(parents=True)
    return paths


class Measured(NamedTuple):
    """``peak_gib`` is the resident memory of the largest process: the JVM, where there is one."""

    cpu_seconds: float
    wall_seconds: float
    peak_gib: float


def measure(engine: str, raw: Path, out: Path) -> Measured:
    """Run an engine in a process of its own. A JVM outlives the driver that started it, and is waited for as well."""
    log = out.with_suffix(".log")
    command = [sys.executable, __file__, "--engine", engine, "--raw", str(raw), "--out", str(out)]
    environment = os.environ | {"POLARS_MAX_THREADS": str(NUM_THREADS)}
    start = time.monotonic()
    with log.open("wb") as stream:
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)
    cpu_seconds = wall_seconds = peak_kib = 0.0
    while True:
        try:
            pid, status, usage = os.wait3(0)
        except ChildProcessError:
            break
        cpu_seconds += usage.ru_utime + usage.ru_stime
        peak_kib = max(peak_kib, usage.ru_maxrss)
        if pid == process.pid:
            wall_seconds = time.monotonic() - start
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{log.read_text(errors='replace')[-4000:]}\n{engine}: exit code {process.returncode}")
    return Measured(cpu_seconds, wall_seconds, peak_kib / 2**20)


def row_checksum(out: Path) -> tuple[int, int]:
    """Return the number of rows and the sum of their hashes modulo 2**64: the same for the same rows in any order."""
    num_rows = total = 0
    for path in out.glob("features/day=*/*.parquet"):
        day = int(path.parent.name.removeprefix("day="))
        for rows in pq.ParquetFile(path).iter_batches(columns=COLUMNS):
            hash_B = np.full(len(rows), day + 1, np.uint64)
            for name in COLUMNS:
                value_B = rows.column(name).to_numpy()
                assert value_B.dtype == (np.float32 if name in DENSE else np.int32), (path, name, value_B.dtype)
                hash_B = (hash_B ^ value_B.view(np.uint32).astype(np.uint64)) * _MULTIPLIER
                hash_B ^= hash_B >> np.uint64(32)
            num_rows, total = num_rows + len(rows), (total + int(hash_B.sum())) % 2**64
    return num_rows, total


def compare(num_rows: int, repeats: int) -> dict[str, list[Measured]]:
    """Measure the engines in turns. Exits where an output has other rows than the first had."""
    clean = {"malformed_per_day": 0, "headers_per_day": 0, "crlf_per_day": 0, "blank_day": None, "bom_day": None}
    config = CriteoLikeConfig(num_days=NUM_DAYS, rows_per_day=num_rows // NUM_DAYS, **clean)
    runs: dict[str, list[Measured]] = {engine: [] for engine in ENGINES}
    wanted: tuple[int, int] | None = None
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw")
        write_criteo_like(raw, config)
        for repeat in range(repeats):
            for engine in ENGINES:
                out = Path(folder, f"{engine}_{repeat}")
                out.mkdir()
                runs[engine].append(measure(engine, raw, out))
                found = row_checksum(out)
                wanted = wanted or found
                if found != wanted or found[0] != sum(config.rows):
                    sys.exit(
                        f"{engine}: {found[0]:,} rows, checksum {found[1]:x}; expected {wanted[0]:,}, {wanted[1]:x}"
                    )
                shutil.rmtree(out)
    return runs


def print_table(runs: dict[str, list[Measured]], num_rows: int) -> None:
    anchor = statistics.median(run.cpu_seconds for run in runs["duckdb"])
    repeats = len(runs["duckdb"])
    print(describe())
    print(f"{num_rows:,} rows on {NUM_THREADS} threads; medians of {repeats}; all outputs hold the same rows\n")
    print("| engine | CPU-s | least to most | over DuckDB | wall s | rows per CPU-s | peak GiB |")
    print("|---|---|---|---|---|---|---|")
    for engine, measured in runs.items():
        cpu, wall, peak = (statistics.median(values) for values in zip(*measured))
        all_cpu = [run.cpu_seconds for run in measured]
        name = f"{engine} ({ENGINES[engine][1]} {version(ENGINES[engine][1])})"
        spread = f"{min(all_cpu):.1f}–{max(all_cpu):.1f}"
        print(
            f"| {name} | {cpu:.1f} | {spread} | {cpu / anchor:.2f} | {wall:.1f} | {num_rows / cpu:,.0f} | {peak:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help=f"a multiple of {NUM_DAYS}")
    parser.add_argument("--repeats", type=int, default=3, help="an odd number")
    parser.add_argument("--engine", choices=ENGINES, help="run one engine in this process, on --raw into --out")
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.engine:
        ENGINES[given.engine][0](given.raw, given.out)
        return
    if given.repeats % 2 == 0 or given.rows % NUM_DAYS:
        parser.error(f"--repeats = {given.repeats} must be odd, --rows = {given.rows} a multiple of {NUM_DAYS}")
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this kernel does not hand orphans to a subreaper; CPU-seconds of a JVM would be lost")
    print_table(compare(given.rows, given.repeats), given.rows)


if __name__ == "__main__":
    main()
