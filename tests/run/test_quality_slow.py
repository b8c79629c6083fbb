"""Ten million generated rows: how far the model goes from logistic regression to the best possible AUC."""

import shutil
from pathlib import Path

import pytest

from rec.cli import main
from rec.core.records import newest_record

RECIPE = Path(__file__).resolve().parents[2] / "conf/criteo_demo.yaml"
NUM_TRAIN_DAYS = 4
STAGES = ("etl", "train", "evaluate")


@pytest.fixture
def folder(tmp_path):
    """A folder that is emptied at once: the raw rows alone take 2.5 GB."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def walked(folder: Path, num_train_rows: int) -> tuple[dict[str, float], dict[str, float]]:
    """Walk the demo's recipe over this many train rows; return each model's test AUC and each stage's minutes."""
    rows = [num_train_rows // NUM_TRAIN_DAYS] * NUM_TRAIN_DAYS + [100_000, 100_000]
    settings = [f"dataset.rows_per_day={rows}", f"source.path={folder}/raw/day_*.tsv", f"root={folder}/lake"]
    options = [part for setting in settings for part in ("--set", setting)]
    for verb in STAGES:
        assert main([verb, str(RECIPE), *options]) == 0
    records = {stage: newest_record(folder / "lake", stage) for stage in STAGES}
    assert records["etl"].figures["num_rows"] == sum(rows)
    figures = records["evaluate"].figures
    auc = {"model": figures["test"]["auc"]} | {name: found["auc"] for name, found in figures["baselines"].items()}
    return auc, {stage: record.seconds / 60 for stage, record in records.items()}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_million_rows_close_two_thirds_of_the_way(folder, spark, record_property):
    auc, minutes = walked(folder, 10_000_000)
    best, linear = auc["planted"], auc["logistic_regression"]
    share = (auc["model"] - linear) / (best - linear)
    record_property("share of the way", f"{share:.3f}")
    record_property("AUC", " / ".join(f"{name} {value:.4f}" for name, value in auc.items()))
    record_property("minutes", " / ".join(f"{stage} {value:.1f}" for stage, value in minutes.items()))
    assert 0.79 <= best <= 0.82
    assert linear <= best - 0.015
    assert share >= 2 / 3
