"""Real rows: the recipe beats, or stands beside, logistic regression on hashed fields of the same file."""

from pathlib import Path

import numpy as np
import pytest

from rec.cli import main
from rec.core.records import newest_record
from rec.train.bootstrap import auc_interval
from rec.train.curves import read_scores
from rec.train.hashed_baseline import hashed_logistic_regression, read_hashed_rows

RECIPE = Path(__file__).resolve().parents[2] / "conf/criteo_kaggle.yaml"
TRAIN_LINES, VALID_LINES = 8_000, 10_000
SEEDS = (1, 2, 3)


@pytest.fixture
def settings(criteo_dir, tmp_path):
    lines = f"source.day={{lines: [{TRAIN_LINES}, {VALID_LINES}]}}"
    path = f"source.path={criteo_dir / 'kaggle_labelled.tsv'}"
    return ["--set", path, "--set", lines, "--set", f"root={tmp_path / 'lake'}"]


def test_every_real_line_is_a_row(criteo_dir, settings, tmp_path, spark):
    assert main(["etl", str(RECIPE), *settings]) == 0
    figures = newest_record(tmp_path / "lake", "etl").figures
    assert [row["lines"] for row in figures["ledger"]] == [8_000, 2_000, 2_569]
    assert figures["num_rows"] == 12_569


@pytest.mark.slow
def test_three_seeds_stand_beside_logistic_regression(criteo_dir, settings, tmp_path, spark):
    assert main(["etl", str(RECIPE), *settings]) == 0
    logits, labels = [], None
    for seed in SEEDS:
        for verb in ("train", "evaluate"):
            assert main([verb, str(RECIPE), *settings, "--set", f"train.seed={seed}"]) == 0
        scores = read_scores(newest_record(tmp_path / "lake", "evaluate").outputs["scores"].uri)
        logits.append(scores["logit"])
        labels = scores["label"]
    rows = read_hashed_rows(criteo_dir / "kaggle_labelled.tsv")
    parts = [rows.lines(1, TRAIN_LINES), rows.lines(TRAIN_LINES + 1, VALID_LINES), rows.lines(VALID_LINES + 1)]
    baseline = hashed_logistic_regression(*parts)
    ours = auc_interval(logits, np.asarray(labels))
    theirs = auc_interval(baseline.logit_B, parts[2].label_B)
    assert ours.auc >= theirs.auc - 0.01, f"ours {ours}, hashed logistic regression {theirs}"
