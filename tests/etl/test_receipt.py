"""The GPU receipt: the whole features stage under the real RAPIDS jar in explain-only mode."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rec.core.records import newest_record
from rec.datasets.criteo_like import CriteoLikeConfig, write_criteo_like
from rec.etl.receipt import CONF, explain_conf
from rec.etl.session import read_spark_conf

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = REPOSITORY / "conf/spark/cluster-gpu.conf"
# A source with whitespace-only lines is scanned as text: the scan stays on the CPU, and so does what asks for its
# file and block. Sources of csv and Parquet have nothing on this list.
TEXT_SCAN_FALLBACKS = {
    "FileSourceScanExec",
    "ProjectExec",
    "Alias",
    "InputFileName",
    "InputFileBlockStart",
    "MonotonicallyIncreasingID",
    "AttributeReference",
    # The same projection takes off a carriage return and splits the line.
    "CaseWhen",
    "EndsWith",
    "Length",
    "Literal",
    "StringSplit",
    "Substring",
    "Subtract",
}

pytestmark = [
    pytest.mark.rapids,
    pytest.mark.skipif(not any((REPOSITORY / "jars/gpu").glob("*.jar")), reason="no RAPIDS jar; run: make gpu-jar"),
]


def explain(folder: Path, program: str, *arguments: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


RECEIPT = """
import json, sys
from rec.run import explain_etl, load_recipe
receipt = explain_etl(load_recipe(sys.argv[1]), sys.argv[2], broadcasts=sys.argv[3] == "on")
print(json.dumps({**receipt.figures(), "is_whole": receipt.is_whole}))
"""


def recipe(folder: Path, *, blank_day: int | None) -> Path:
    config = CriteoLikeConfig(num_days=3, rows_per_day=400, malformed_per_day=0, blank_day=blank_day, num_blank=1)
    write_criteo_like(folder / "raw", config)
    content = {
        "name": "receipt",
        "root": str(folder / "lake"),
        "source": {
            "path": f"{folder}/raw/day_*.tsv",
            "day": {"path": r"day_(\d+)"},
            "max_quarantine_fraction": 0.01,
            "work_dir": str(folder / "work"),
        },
        "days": {"train": [0], "valid": [1], "test": [2]},
        "features": {
            "dense": {"columns": ["I1", "I2"], "ops": ["fill_missing", {"clip": {"min": 0}}, "log", "normalize"]},
            "filled": {"columns": ["I3"], "ops": ["fill_median", {"clip": {"min": 0}}, "log"]},
            "sparse": {"columns": ["C1", "C2", "C3"], "ops": [{"categorify": {"freq_threshold": 2, "max_size": 50}}]},
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("broadcasts", ["on", pytest.param("off", marks=pytest.mark.slow)])
def test_every_query_of_the_stage_runs_on_the_gpu(tmp_path, broadcasts):
    receipt = explain(tmp_path, RECEIPT, str(recipe(tmp_path, blank_day=None)), str(CLUSTER), broadcasts)
    assert receipt["fallbacks"] == []
    assert receipt["queries"] > 10
    assert receipt["plans"] >= receipt["queries"]
    assert receipt["is_whole"]
    # Lines that were parsed there before would not be read, and no plan of it be seen.
    assert not (tmp_path / "work").exists()
    inputs = newest_record(tmp_path / "lake", "explain").inputs
    assert sorted(inputs) == ["day_0.tsv", "day_1.tsv", "day_2.tsv", CONF]


@pytest.mark.slow
def test_blank_lines_move_the_scan_alone_to_the_cpu(tmp_path):
    receipt = explain(tmp_path, RECEIPT, str(recipe(tmp_path, blank_day=1)), str(CLUSTER), "on")
    off = {operator for operator, _ in receipt["fallbacks"]}
    assert "FileSourceScanExec" in off
    assert off <= TEXT_SCAN_FALLBACKS


def test_red_controls(tmp_path):
    program = (REPOSITORY / "tests/etl/receipt_controls.py").read_text().replace("__file__", repr(str(Path(__file__))))
    found = explain(tmp_path, program, str(tmp_path))
    assert found.pop("clean") == []
    assert all(found.values()), found


def test_only_what_the_mode_needs_differs_from_the_cluster():
    cluster, session = read_spark_conf(CLUSTER), explain_conf(CLUSTER)
    changed = {key for key, value in cluster.items() if session.get(key) != value}
    resources = {key for key in cluster if key.startswith("spark.executor.") or ".resource.gpu." in key}
    assert changed <= resources | {"spark.sql.shuffle.partitions"}
