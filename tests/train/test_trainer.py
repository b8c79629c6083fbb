"""Training on real process groups over a real Delta table."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from planted_table import SCHEMA, SIZES, planted_day, write_table
from process_group import GroupRanks, RankPool

from rec.core.errors import CheckpointError, LoaderError, TrainingError
from rec.core.tables import Days
from rec.data.loader import make_loader
from rec.launch.figures import training_figures
from rec.model.config import DLRMConfig
from rec.train.checkpoint import complete_checkpoints, load_model, open_checkpoint
from rec.train.config import TrainConfig
from rec.train.evaluation import evaluate_checkpoint
from rec.train.learner import Learner
from rec.train.records import EvaluationJob, TrainingJob
from rec.train.trainer import train

MODEL = DLRMConfig(embedding_dim=8, bottom_mlp_hidden=(16,), top_mlp_hidden=(16,))
CONFIG = TrainConfig(
    global_batch_size=256,
    num_streams=4,
    seed=3,
    max_epochs=2,
    patience=5,
    sparse_learning_rate=0.1,
    dense_learning_rate=0.01,
    data_parallel_max_bytes=200,
    checkpoint_every_steps=3,
)
STEPS_PER_EPOCH = 8


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Train day 0 of 8 steps and a remainder, valid day 1, day 2 with labels turned round, day 3 of one label."""
    negative = planted_day(3, 300)
    negative = negative.set_column(1, "label", pa.array(np.zeros(300, np.int32)))
    days = [planted_day(0, 2100), planted_day(1, 700), planted_day(2, 700, sign=-1.0), negative]
    return write_table(tmp_path_factory.mktemp("lake") / "features", *days)


def job_of(table, folder, days=None, model=MODEL, **settings):
    days = days or Days(train=(0,), valid=(1,))
    return TrainingJob(
        table=table, days=days, model=model, config=CONFIG.model_copy(update=settings), folder=str(folder)
    )


def remembered(checkpoint) -> dict:
    """All of a training's log but how long it took."""
    return checkpoint.log.model_dump(exclude={"train_seconds"})


class CountingRanks(GroupRanks):
    num_all_reduce = 0

    def all_reduce(self, tensors, *, average):
        self.num_all_reduce += 1
        super().all_reduce(tensors, average=average)


def trained(ranks, job, kill_rank=None, kill_step=None):
    """Train; return (checkpoint, loss of each step). Rank ``kill_rank`` kills itself after ``kill_step``."""
    losses = []

    def report(*, phase, step=None, **figures):
        if phase == "train":
            losses.append(figures["loss"])
            if (ranks.rank, step) == (kill_rank, kill_step):
                os.kill(os.getpid(), signal.SIGKILL)

    return train(ranks, job, report), losses


@pytest.fixture(scope="module")
def uninterrupted(table, two_ranks, tmp_path_factory):
    """Two epochs on two ranks: what every other way to the same end is compared with."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    results = two_ranks.run(trained, job_of(table, folder))
    assert results[0][1] == results[1][1]
    return results[0]


@pytest.fixture(scope="module")
def killed_folder(table, tmp_path_factory):
    """Two ranks, one of which is killed by SIGKILL after step 13, in the middle of the second epoch."""
    folder = tmp_path_factory.mktemp("killed")
    pool = RankPool(2)
    answers = pool.try_run(trained, job_of(table, folder), 1, 13)
    pool.close()
    assert all(isinstance(a, BaseException) for a in answers)
    assert open_checkpoint(complete_checkpoints(folder)[-1]).step == 12
    return folder


def test_one_and_two_ranks_have_the_same_loss_curve(table, one_rank, uninterrupted, tmp_path):
    checkpoint, losses = one_rank.run(trained, job_of(table, tmp_path))[0]
    assert len(losses) == 2 * STEPS_PER_EPOCH
    assert losses == pytest.approx(uninterrupted[1], rel=2e-4)
    assert losses[-1] < 0.9 * losses[0]
    found, expected = checkpoint.log.epochs[-1].evaluation, uninterrupted[0].log.epochs[-1].evaluation
    assert found.auc == pytest.approx(expected.auc, abs=2e-3)
    assert found.num_rows == expected.num_rows == 700
    assert found.auc > 0.6


def test_a_run_killed_within_an_epoch_resumes_to_the_same_bits(
    table, two_ranks, killed_folder, uninterrupted, tmp_path
):
    shutil.copytree(killed_folder, tmp_path, dirs_exist_ok=True)
    half_written = tmp_path / "step_0000000015"
    half_written.mkdir()
    (half_written / "dense.safetensors").write_bytes(b"half")
    checkpoint, losses = two_ranks.run(trained, job_of(table, tmp_path))[0]
    assert losses == uninterrupted[1][12:]
    assert [open_checkpoint(p).step for p in complete_checkpoints(tmp_path)] == [15, 16]
    assert checkpoint.files == uninterrupted[0].files
    assert remembered(checkpoint) == remembered(uninterrupted[0])
    assert checkpoint.log.train_seconds > open_checkpoint(killed_folder / "step_0000000012").log.train_seconds > 0


def test_it_resumes_on_another_world_size_to_float_tolerance(table, one_rank, killed_folder, uninterrupted, tmp_path):
    shutil.copytree(killed_folder, tmp_path, dirs_exist_ok=True)
    checkpoint, losses = one_rank.run(trained, job_of(table, tmp_path))[0]
    assert losses == pytest.approx(uninterrupted[1][12:], rel=2e-4)
    assert checkpoint.world_size == 1
    _, found = load_model(checkpoint)
    _, expected = load_model(uninterrupted[0])
    for name, weight in expected.items():
        assert torch.allclose(found[name], weight, atol=2e-3)


def test_a_world_size_that_does_not_divide_the_streams_is_refused(table, three_ranks, killed_folder):
    with pytest.raises(LoaderError, match="world size 3 does not divide num_streams = 4"):
        three_ranks.run(trained, job_of(table, killed_folder))


def test_a_finished_training_is_not_trained_again(table, two_ranks, uninterrupted):
    folder = Path(uninterrupted[0].path).parent
    checkpoint, losses = two_ranks.run(trained, job_of(table, folder))[0]
    assert losses == []
    assert checkpoint == uninterrupted[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sparse_learning_rate": 0.3}, "trained with sparse_learning_rate = 0.1, asked for 0.3; give another folder"),
        ({"seed": 4}, "trained with seed = 3, asked for 4"),
        ({"days": Days(train=(0,), valid=(2,))}, r"trained with days = .*'valid': \(1,\).*asked for .*\(2,\)"),
        ({"model": DLRMConfig(embedding_dim=4)}, "trained with model = .*'embedding_dim': 8.*asked for .*: 4"),
    ],
)
def test_a_folder_of_another_training_is_refused(table, one_rank, uninterrupted, settings, message):
    folder = Path(uninterrupted[0].path).parent
    with pytest.raises(CheckpointError, match=message):
        one_rank.run(trained, job_of(table, folder, **settings))


def steps_with_state(ranks, table):
    counting = CountingRanks.of(ranks.group)
    learner = Learner(MODEL, CONFIG, SCHEMA, counting)
    loader = make_loader(table, (0,), rank=ranks.rank, world_size=ranks.world_size, config=CONFIG)
    states = []
    for step, batch in enumerate(loader):
        learner.train_step(batch, step)
        tensors = [*learner.dense_state().values(), *learner.embeddings.replicated_parameters]
        states.append([t.detach().numpy().tobytes() for t in tensors])
    return states, counting.num_all_reduce


def test_replicas_are_bit_equal_after_every_step_of_one_exchange(table, two_ranks):
    (first, num_exchanges), (second, _) = two_ranks.run(steps_with_state, table)
    assert num_exchanges == len(first) == STEPS_PER_EPOCH
    assert first == second
    assert len({state[0] for state in first}) == STEPS_PER_EPOCH


@pytest.mark.parametrize("dense_optimizer", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("sparse_optimizer", ["sgd", "adagrad", "rowwise_adagrad"])
def test_each_optimizer_resumes_with_its_state(table, one_rank, tmp_path, dense_optimizer, sparse_optimizer):
    settings = {
        "dense_optimizer": dense_optimizer,
        "sparse_optimizer": sparse_optimizer,
        "checkpoint_every_steps": None,
    }
    whole = one_rank.run(trained, job_of(table, tmp_path / "whole", **settings))[0]
    one_rank.run(trained, job_of(table, tmp_path / "parts", **settings, max_epochs=1))
    parts = one_rank.run(trained, job_of(table, tmp_path / "parts", **settings))[0]
    assert parts[1] == whole[1][STEPS_PER_EPOCH:]
    last = [open_checkpoint(complete_checkpoints(tmp_path / name)[-1]) for name in ("whole", "parts")]
    assert last[0].files == last[1].files


def test_weight_decay_shrinks_dense_weights(table, one_rank, tmp_path):
    norms = []
    for decay in (0.0, 0.5):
        settings = {"dense_optimizer": "sgd", "dense_weight_decay": decay, "max_epochs": 1}
        checkpoint = one_rank.run(trained, job_of(table, tmp_path / str(decay), **settings))[0][0]
        norms.append(sum(float(p.detach().square().sum()) for p in load_model(checkpoint)[0].parameters()))
    assert norms[1] < 0.95 * norms[0]


def test_a_loss_that_is_not_finite_names_the_step(table, two_ranks, tmp_path):
    answers = two_ranks.try_run(trained, job_of(table, tmp_path, dense_optimizer="sgd", dense_learning_rate=1e30))
    for answer in answers:
        assert isinstance(answer, TrainingError)
        assert "at step 1; lower dense_learning_rate = 1e+30 or sparse_learning_rate = 0.1" in str(answer)


def test_training_stops_when_the_valid_day_gets_worse(table, one_rank, tmp_path):
    days = Days(train=(0,), valid=(2,))
    job = job_of(table, tmp_path, days, max_epochs=6, patience=2, metric="log_loss", checkpoint_every_steps=None)
    checkpoint, losses = one_rank.run(trained, job)[0]
    assert len(losses) == 3 * STEPS_PER_EPOCH
    assert checkpoint.num_epochs == 1
    kept = [open_checkpoint(p).num_epochs for p in complete_checkpoints(tmp_path)]
    assert kept == [1, 2, 3]
    figures = training_figures(checkpoint)
    assert [epoch["epoch"] for epoch in figures["epochs"]] == [1, 2, 3]
    assert figures["best_epoch"] == 1
    assert figures["stopped_early"] is True
    assert figures["num_steps"] == len(figures["loss_curve"]) == len(losses)
    assert [loss for _, loss in figures["loss_curve"]] == losses


def test_without_valid_days_all_epochs_are_trained_and_the_last_two_kept(table, one_rank, tmp_path):
    checkpoint, losses = one_rank.run(trained, job_of(table, tmp_path, Days(train=(0, 1)), max_epochs=3))[0]
    assert len(losses) == 3 * (2800 // 256)
    assert checkpoint.num_epochs == 3
    assert checkpoint.log.epochs[-1].evaluation is None
    assert [open_checkpoint(p).step for p in complete_checkpoints(tmp_path)] == [27, 30]


@pytest.mark.parametrize(("days", "role"), [(Days(train=(3,)), "train"), (Days(train=(0,), valid=(3,)), "valid")])
def test_days_of_one_label_are_refused_before_the_first_step(table, two_ranks, tmp_path, days, role):
    answers = two_ranks.try_run(trained, job_of(table, tmp_path / "none", days))
    for answer in answers:
        assert isinstance(answer, TrainingError)
        assert f"days.{role} [3]: all 300 labelled rows have label 0; both 0 and 1 are needed" in str(answer)
    assert not (tmp_path / "none").exists()


def evaluated(ranks, job):
    return evaluate_checkpoint(ranks, job)


def test_evaluation_does_not_depend_on_the_world_size_and_plain_torch_gives_its_logits(
    table, one_rank, two_ranks, uninterrupted, tmp_path
):
    checkpoint = uninterrupted[0]
    job = EvaluationJob(checkpoint=checkpoint.path, table=table, days=(1,), scores_folder=str(tmp_path / "two"))
    two = two_ranks.run(evaluated, job)
    one = one_rank.run(evaluated, job.model_copy(update={"scores_folder": str(tmp_path / "one")}))
    assert two[0] == two[1]
    assert two[0] == checkpoint.log.epochs[1].evaluation
    for name in ("num_rows", "num_positive", "auc", "log_loss", "normalized_entropy", "calibration"):
        assert getattr(one[0], name) == pytest.approx(getattr(two[0], name), abs=1e-6)
    scores = [np.load(p) for p in sorted((tmp_path / "two").iterdir())]
    keys, labels, logits = (np.concatenate([s[n] for s in scores]) for n in ("row_key", "label", "logit"))
    rows = planted_day(1, 700).to_pandas().set_index("row_key").loc[keys]
    assert sorted(keys) == sorted(planted_day(1, 700).column("row_key").to_pylist())
    assert (rows["label"].to_numpy() == labels).all()
    model, tables = load_model(checkpoint)
    embedded = torch.stack([tables[n][torch.from_numpy(rows[n].to_numpy().astype(np.int64))] for n in SIZES], 1)
    with torch.no_grad():
        expected = model(torch.from_numpy(rows[["I1", "I2"]].to_numpy()), embedded).numpy()
    assert (abs(logits - expected) <= 1e-5 * (1 + abs(expected))).all()


def test_a_table_of_another_state_is_not_scored(table, one_rank, uninterrupted):
    other = type(table)(**{**table.__dict__, "state_id": "1" * 64})
    job = EvaluationJob(checkpoint=uninterrupted[0].path, table=other, days=(1,))
    with pytest.raises(CheckpointError, match=r"trained on state 0{64}, table .* is encoded by 1{64}"):
        one_rank.run(evaluated, job)


def test_the_plan_and_the_losses_are_in_the_manifest(uninterrupted):
    checkpoint = open_checkpoint(uninterrupted[0].path)
    assert checkpoint == uninterrupted[0]
    assert {p.table.name: p.sharding for p in checkpoint.plan.placements} == {
        "C1": "data_parallel",
        "C2": "table_wise",
        "C3": "table_wise",
        "C4": "table_wise",
    }
    assert [point.step for point in checkpoint.log.losses] == list(range(1, 17))
    assert [point.loss for point in checkpoint.log.losses] == uninterrupted[1]
