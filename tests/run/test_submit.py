"""spark-submit of a job, as a real subprocess with the session of its properties file."""

import json
import os
import re
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


def cluster_lines() -> list[str]:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return [line for line in readme.splitlines() if line.startswith("spark-submit ")]


def test_the_cluster_commands_name_files_that_are_there():
    lines = cluster_lines()
    assert [re.search(r"jobs/(\w+)\.py", line)[1] for line in lines] == ["etl", "train"]
    for line in lines:
        named = re.findall(r"(?:--properties-file |--files |jobs/\S+ )(\S+)", line) + re.findall(r"jobs/\S+", line)
        assert len(named) == 4
        for name in named:
            assert (REPOSITORY / name).is_file(), name
    conf = (REPOSITORY / "conf/spark/cluster-gpu.conf").read_text(encoding="utf-8")
    script = re.search(r"discoveryScript\s+(\S+)", conf)[1]
    assert all(f"--files deploy/{Path(script).name}" in line for line in lines)


def test_the_cluster_command_for_training_starts_a_session(tmp_path, raw_days):
    """On one machine without GPU: the session is there, and the job finds that nothing was written yet."""
    road = Road(tmp_path, raw_days)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(road.content))
    [line] = [line for line in cluster_lines() if "jobs/train.py" in line]
    here = "spark-submit --master local[1] --driver-memory 1g --conf spark.executor.resource.gpu.amount=0 "
    here += "--conf spark.task.resource.gpu.amount=0 "
    line = line.replace("spark-submit ", here).replace("conf/criteo_1tb.yaml", str(recipe))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", "-c", line], cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2, done.stderr[-3000:]
    # spark-submit sends both of a job's outputs to its own standard output.
    [error] = [line for line in done.stdout.splitlines() if line.startswith("error: ")]
    assert str(road.root) in error
    assert "rec etl" in error


def test_the_discovery_script_tells_gpus_as_spark_reads_them(tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nprintf '0\\n1\\n'\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    told = subprocess.run([REPOSITORY / "deploy/gpus.sh"], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == {"name": "gpu", "addresses": ["0", "1"]}
    environment["PATH"] = os.defpath
    assert subprocess.run([REPOSITORY / "deploy/gpus.sh"], env=environment, capture_output=True).returncode != 0
