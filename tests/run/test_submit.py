"""spark-submit of a job, as a real subprocess with the session of its properties file."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from small_road import Road

from rec.core.records import newest_record

REPOSITORY = Path(__file__).resolve().parents[2]


def test_spark_submit_runs_the_features_job(tmp_path, raw_days):
    road = Road(tmp_path, raw_days)
    road.content["features"]["sparse"]["columns"] = ["C1", "C2"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(road.content))
    jars = ",".join(str(p) for p in sorted((REPOSITORY / "jars").glob("*.jar")))
    submit = [Path(sys.executable).with_name("spark-submit"), "--jars", jars]
    settings = ["--properties-file", REPOSITORY / "conf/spark/local.conf", "--name", "submitted"]
    done = subprocess.run(
        [*submit, *settings, REPOSITORY / "jobs/etl.py", str(recipe)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert newest_record(road.root, "etl").figures["num_rows"] == 1200
    assert "Bins add up" in done.stdout
