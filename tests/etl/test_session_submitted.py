"""Every job under a real spark-submit: what it was given stays, what rows depend on is required."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS = sorted((REPOSITORY / "jobs").glob("*.py"))
RECIPE = {
    "name": "submitted",
    "root": "lake",
    "source": {"path": "nowhere.tsv", "day": {"path": r"day_(\d+)"}},
    "days": {"train": [0]},
    "features": {"sparse": {"columns": "C*", "ops": ["categorify"]}},
}
OPTIONS = "spark.driver.extraJavaOptions"
# Keys that a session of our own would set, each to something else here.
GIVEN = {
    "spark.app.name": "theirs",
    "spark.master": "local[1]",
    "spark.jars": ",".join(str(p) for p in sorted((REPOSITORY / "jars").glob("*.jar"))),
    "spark.driver.memory": "700m",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    OPTIONS: "-Duser.timezone=UTC -Dtheirs=1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.adaptive.enabled": "true",
    "spark.databricks.delta.snapshotPartitions": "5",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def submit(folder: Path, job: Path, changes: dict[str, str]) -> subprocess.CompletedProcess:
    """Run a job that ends at its first look at its input, half of its settings from a file, half by options."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    given = GIVEN | {"spark.eventLog.dir": str(folder)} | changes
    conf = folder / "theirs.conf"
    conf.write_text("".join(f"{key} {value}\n" for key, value in list(given.items())[::2]))
    options = [x for key, value in list(given.items())[1::2] for x in ("--conf", f"{key}={value}")]
    return subprocess.run(
        [Path(sys.executable).with_name("spark-submit"), "--properties-file", conf, *options, job, recipe],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=200,
    )


def errors(done: subprocess.CompletedProcess) -> list[str]:
    # spark-submit sends both streams of a Python program to its standard output.
    return [line for line in done.stdout.splitlines() if line.startswith("error: ")]


def started_with(folder: Path) -> dict[str, str]:
    """Return the settings of the application that left its event log in a folder."""
    [log] = [p for p in folder.iterdir() if p.name.startswith(("local-", "app-"))]
    events = map(json.loads, log.read_text().splitlines())
    return next(e["Spark Properties"] for e in events if e["Event"] == "SparkListenerEnvironmentUpdate")


@pytest.mark.parametrize(
    "job", [j if j.stem == "etl" else pytest.param(j, marks=pytest.mark.slow) for j in JOBS], ids=lambda p: p.stem
)
def test_no_setting_wins_over_spark_submit(tmp_path, job):
    done = submit(tmp_path, job, {})
    assert done.returncode == 2, done.stderr[-3000:]
    assert len(errors(done)) == 1, done.stdout[-3000:]
    # Spark makes URLs of the jars, and puts Java options of its own before those that it is given.
    settings = {k: v.replace("file:///", "/") for k, v in started_with(tmp_path).items()}
    options = settings.pop(OPTIONS)
    assert options.endswith(f" {GIVEN[OPTIONS]}")
    assert {key: settings.get(key) for key in GIVEN if key != OPTIONS} == {k: GIVEN[k] for k in GIVEN if k != OPTIONS}


def test_a_setting_that_loses_rows_is_refused(tmp_path):
    done = submit(tmp_path, REPOSITORY / "jobs/etl.py", {"spark.sql.files.ignoreCorruptFiles": "true"})
    assert done.returncode == 2, done.stderr[-3000:]
    assert errors(done) == [
        "error: spark.sql.files.ignoreCorruptFiles=true hides lost rows; remove it from the Spark conf"
    ]
