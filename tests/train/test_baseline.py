"""Logistic regression on encoded rows, and that the generated rows ask for more than it can give."""

import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from encoded_clicks import click_rows, write_encoded
from sklearn.metrics import roc_auc_score

from rec.core.tables import Days
from rec.data.config import LoaderConfig
from rec.train.baseline import LogisticRegressionConfig, logistic_regression

DAYS = Days(train=(0, 1), valid=(2,), test=(3,))
LOADER = LoaderConfig(global_batch_size=1024, num_streams=4)
NUM_ROWS = {0: 100_000, 1: 100_000, 2: 30_000, 3: 100_000}


@pytest.fixture(scope="module")
def rows():
    return {day: click_rows(day, num_rows) for day, num_rows in NUM_ROWS.items()}


@pytest.fixture(scope="module")
def table(rows, tmp_path_factory):
    return write_encoded(tmp_path_factory.mktemp("clicks"), rows, DAYS.train)


@pytest.fixture(scope="module")
def small_table(rows, tmp_path_factory):
    small = {day: r.head(8_000) for day, r in rows.items()}
    return write_encoded(tmp_path_factory.mktemp("few_clicks"), small, DAYS.train)


@pytest.fixture(scope="module")
def fitted(table):
    return logistic_regression(table, DAYS, LOADER)


def test_the_planted_auc_is_high_and_logistic_regression_stays_below(rows, fitted):
    planted = roc_auc_score(rows[3].label_B, rows[3].prob_B)
    assert 0.79 <= planted <= 0.82
    assert 0.72 <= fitted.test.auc <= planted - 0.015


def test_planted_probabilities_are_calibrated(rows):
    labels, prob = (np.concatenate([getattr(r, f) for r in rows.values()]) for f in ("label_B", "prob_B"))
    assert 0.2 <= labels.mean() <= 0.3
    for low, high in ((0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1)):
        inside = (prob >= low) & (prob < high)
        deviation = np.sqrt((prob[inside] * (1 - prob[inside])).sum())
        assert abs(labels[inside].sum() - prob[inside].sum()) < 4 * deviation


def test_no_single_column_tells_much(rows):
    train = [rows[0], rows[1]]
    for value, missing in (("value_DB", "dense_missing_DB"), ("key_FB", "sparse_missing_FB")):
        for column in range(len(getattr(rows[0], value))):
            cells = [np.where(getattr(r, missing)[column], 2**40, getattr(r, value)[column]) for r in (*train, rows[3])]
            scores = rate_by_value(np.concatenate(cells[:2]), np.concatenate([r.label_B for r in train]), cells[2])
            assert roc_auc_score(rows[3].label_B, scores) < 0.65, (value, column)


def rate_by_value(values: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the smoothed mean label of each asked value in other rows."""
    known, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    rate = (np.bincount(place, labels) + 5 * labels.mean()) / (counts + 5)
    found = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[found] == asked, rate[found], labels.mean())


def test_shuffled_labels_teach_nothing(rows, tmp_path):
    generator = np.random.default_rng(0)
    shuffled = {day: replace(r, label_B=generator.permutation(r.label_B)) for day, r in rows.items()}
    table = write_encoded(tmp_path / "shuffled", shuffled, DAYS.train)
    result = logistic_regression(table, DAYS, LOADER, LogisticRegressionConfig(penalties=(100.0,), max_epochs=2))
    assert result.test.auc == pytest.approx(0.5, abs=0.01)


def test_every_test_row_is_scored_once(rows, fitted):
    order = np.argsort(fitted.row_key_B)
    line = fitted.row_key_B[order] - 3 * 2**40
    assert np.array_equal(line, 1 + np.arange(NUM_ROWS[3]))
    assert np.array_equal(fitted.label_B[order], rows[3].label_B)
    assert fitted.test.num_rows == NUM_ROWS[3]
    assert fitted.test.auc == pytest.approx(roc_auc_score(fitted.label_B, fitted.logit_B), abs=1e-12)


def test_the_same_rows_give_the_same_scores(small_table):
    first, second = (logistic_regression(small_table, DAYS, LOADER) for _ in range(2))
    assert np.array_equal(first.logit_B, second.logit_B)


def test_penalty_and_epoch_are_chosen_on_the_valid_day(small_table):
    settings = [(penalty, max_epochs) for penalty in (1.0, 1000.0) for max_epochs in (1, 2, 3)]
    alone = [
        logistic_regression(small_table, DAYS, LOADER, LogisticRegressionConfig(penalties=(p,), max_epochs=e))
        for p, e in settings
    ]
    both = logistic_regression(
        small_table, DAYS, LOADER, LogisticRegressionConfig(penalties=(1.0, 1000.0), max_epochs=3)
    )
    best = max(alone, key=lambda result: result.valid_auc)
    assert min(result.valid_auc for result in alone) < best.valid_auc == both.valid_auc
    assert (both.penalty, both.num_epochs) == (best.penalty, best.num_epochs)
    assert np.array_equal(both.logit_B, best.logit_B)


def test_an_epoch_without_a_gain_is_the_last(small_table, caplog):
    config = LogisticRegressionConfig(penalties=(1.0, 300.0), max_epochs=8)
    with caplog.at_level(logging.INFO, logger="rec.train.baseline"):
        result = logistic_regression(small_table, DAYS, LOADER, config)
    for penalty in config.penalties:
        aucs = [record.args[2] for record in caplog.records if record.args[0] == penalty]
        gains = [after > before for before, after in pairwise(aucs)]
        assert all(gains[:-1])
        assert not gains[-1] or len(aucs) == config.max_epochs
        assert max(aucs) <= result.valid_auc
    assert len(caplog.records) < len(config.penalties) * config.max_epochs


def test_a_heavy_penalty_leaves_the_dense_features_alone(small_table):
    heavy, light = (
        logistic_regression(small_table, DAYS, LOADER, LogisticRegressionConfig(penalties=(p,), max_epochs=2))
        for p in (1e8, 30.0)
    )
    assert 0.55 < heavy.test.auc < light.test.auc - 0.02
