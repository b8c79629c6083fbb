"""What training remembers, shows and is configured by."""

import pytest

from rec.core.config import parse_config
from rec.core.errors import ConfigError
from rec.core.tables import Evaluation
from rec.train.config import TrainConfig
from rec.train.progress import Speed, seconds_allowed
from rec.train.records import TrainingLog


def figures(auc, log_loss):
    return Evaluation(
        days=(1,), num_rows=10, num_positive=5, auc=auc, log_loss=log_loss, normalized_entropy=1.0, calibration=1.0
    )


def log_of(*evaluations):
    log = TrainingLog()
    for evaluation in evaluations:
        log.add_step(0.5, 1, 0.25)
        log.add_epoch(evaluation)
    return log


def test_each_metric_has_its_own_best_epoch_and_the_earlier_of_equals_wins():
    log = log_of(figures(0.7, 0.4), figures(0.8, 0.5), figures(0.8, 0.4))
    assert log.best_epoch("auc").epoch == 2
    assert log.best_epoch("log_loss").epoch == 1
    assert log_of(None, None).best_epoch("auc") is None


@pytest.mark.parametrize(
    ("aucs", "patience", "finished"),
    [
        ([0.7], 1, False),
        ([0.7, 0.6], 1, True),
        ([0.7, 0.6], 2, False),
        ([0.7, 0.6, 0.7], 2, True),
        ([0.6, 0.7], 1, False),
    ],
)
def test_patience_counts_epochs_since_the_best(aucs, patience, finished):
    config = TrainConfig(max_epochs=9, patience=patience)
    assert log_of(*(figures(a, 0.5) for a in aucs)).is_finished(config) is finished


def test_only_epochs_that_were_left_out_are_an_early_stop():
    log = log_of(figures(0.7, 0.5), figures(0.6, 0.5))
    assert log.has_stopped_early(TrainConfig(max_epochs=3, patience=1))
    assert not log.has_stopped_early(TrainConfig(max_epochs=2, patience=1))
    assert not log.has_stopped_early(TrainConfig(max_epochs=3, patience=2))


def test_all_epochs_trained_is_finished():
    assert log_of(None, None).is_finished(TrainConfig(max_epochs=2))
    assert not log_of(None).is_finished(TrainConfig(max_epochs=2))


def test_loss_points_are_means_of_the_steps_between():
    log = TrainingLog()
    for loss in (1.0, 2.0, 4.0, 6.0, 9.0):
        log.add_step(loss, 2, 0.25)
    assert log.losses == [(2, 1.5), (4, 5.0)]
    assert log.rows_per_second(100) == 400
    assert TrainingLog().rows_per_second(100) is None
    log.add_epoch(None)
    assert log.epochs[0].loss == 22 / 5
    assert TrainingLog.model_validate_json(log.model_dump_json()) == log


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"max_epoch": 3}, "unknown key 'max_epoch'; did you mean 'max_epochs'"),
        ({"sparse_optimizer": "adam"}, "sparse_optimizer = 'adam': .*'rowwise_adagrad'"),
        ({"dense_learning_rate": 0}, "dense_learning_rate = 0: .*above 0"),
        ({"global_batch_size": 100}, "global_batch_size = 100 is not a multiple of num_streams = 16"),
    ],
)
def test_a_wrong_setting_is_named(content, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(TrainConfig, content, "train")


def test_speed_counts_from_the_step_it_began_at():
    speed = Speed(100, 10, 7)
    shown = [speed.figures() for _ in range(3)]
    assert [s["epoch_step"] for s in shown] == [8, 9, 10]
    assert shown[-1]["eta_s"] == 0
    assert all(s["rows_per_s"] > 0 and s["num_steps"] == 10 for s in shown)


@pytest.mark.parametrize(("num_bytes", "seconds"), [(0, None), (10**8, None), (10**9, 100), (10**11, 4060)])
def test_large_tables_are_given_time(num_bytes, seconds):
    assert seconds_allowed(num_bytes) == seconds
