"""Training and evaluation by ranks in Spark: the same model on one rank and on two."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from made_table import make_table
from pydantic import ValidationError

from rec.core.errors import CheckpointError, LoaderError, RankError
from rec.core.tables import Days
from rec.launch.config import LaunchConfig
from rec.launch.evaluate import evaluate
from rec.launch.train import train_model
from rec.model.config import DLRMConfig
from rec.train.checkpoint import complete_checkpoints, open_checkpoint
from rec.train.config import TrainConfig

SPLIT = Days(train=(0,), valid=(1,), test=(2,))
MODEL = DLRMConfig(embedding_dim=8, bottom_mlp_hidden=(16,), top_mlp_hidden=(16,))


def _config(num_proc: int, **changes) -> TrainConfig:
    settings = {
        "global_batch_size": 64,
        "max_epochs": 4,
        "patience": 4,
        "seed": 3,
        "dense_learning_rate": 3e-3,
        # Two of the four tables are on every rank, two are sharded.
        "data_parallel_max_bytes": 4096,
    }
    return TrainConfig(num_proc=num_proc, **{**settings, **changes})


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return make_table(tmp_path_factory.mktemp("lake") / "features")


@pytest.fixture(scope="module")
def trained(spark, table):
    """Checkpoints of the same training by one rank and by two."""
    return {n: train_model(table, MODEL, _config(n), SPLIT, spark=spark) for n in (1, 2)}


def test_one_and_two_ranks_give_the_same_losses_and_figures(trained):
    one, two = trained[1], trained[2]
    assert (one.world_size, two.world_size) == (1, 2)
    assert [p.step for p in one.log.losses] == [p.step for p in two.log.losses]
    assert len(one.log.losses) >= 60
    np.testing.assert_allclose([p.loss for p in one.log.losses], [p.loss for p in two.log.losses], rtol=1e-4)
    assert one.log.losses[-1].loss < one.log.losses[0].loss
    figures = [[e.evaluation.auc for e in c.log.epochs] for c in (one, two)]
    np.testing.assert_allclose(*figures, atol=1e-3)


def test_a_checkpoint_lies_below_the_tables_root_and_pins_its_version(trained, table):
    root = Path(table.uri).parent
    pins = [json.loads(p.read_text()) for p in (root / "pins").glob("*.json")]
    assert {(p["uri"], p["version"]) for p in pins} == {(table.uri, 0)}
    assert {p["holder"] for p in pins} == {c.path for c in trained.values()}
    assert all(Path(c.path).parents[1] == root / "checkpoints" for c in trained.values())


def test_evaluation_is_exact_whatever_the_number_of_ranks(spark, table, trained, tmp_path):
    two = evaluate(trained[2], table, days=SPLIT.test, spark=spark, scores_folder=tmp_path)
    one = evaluate(trained[2], table, days=SPLIT.test, spark=spark, num_proc=1)
    assert (two.num_rows, two.days) == (1000, (2,))
    assert two.num_positive == one.num_positive
    assert two.auc == pytest.approx(one.auc, abs=1e-5)
    assert two.auc > 0.7
    scores = [np.load(tmp_path / f"scores_{rank:05d}.npz")["row_key"] for rank in range(2)]
    np.testing.assert_array_equal(np.sort(np.concatenate(scores)), np.arange(3000, 4000))


def test_a_finished_training_is_not_trained_again_and_another_is_refused(spark, table, trained):
    folder = Path(trained[1].path).parent
    config = _config(1)
    assert train_model(table, MODEL, config, SPLIT, spark=spark, out=folder) == trained[1]
    with pytest.raises(CheckpointError, match="trained with seed = 3, asked for 4"):
        train_model(table, MODEL, config.model_copy(update={"seed": 4}), SPLIT, spark=spark, out=folder)


def test_a_training_whose_rank_was_killed_goes_on_bit_identically(spark, table, trained, tmp_path):
    killed = []

    def kill_a_rank():
        while not list(tmp_path.glob("step_*/manifest.json")):
            time.sleep(0.005)
        ranks = [p for p in psutil.process_iter(["cmdline"]) if "rec.launch.rank" in (p.info["cmdline"] or ())]
        killed.append(next(p.pid for p in ranks if _ancestor(p, os.getpid())))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_a_rank, daemon=True)
    killer.start()
    config = _config(2, checkpoint_every_steps=7)
    with pytest.raises(
        RankError, match=r"rank [01] \(host .*\) was killed by SIGKILL in phase \w+ at step \d+"
    ) as error:
        train_model(table, MODEL, config, SPLIT, spark=spark, out=tmp_path)
    assert f"pid {killed[0]})" in str(error.value)
    reached = open_checkpoint(complete_checkpoints(tmp_path)[-1]).step
    assert 7 <= reached < 4 * 31
    resumed = train_model(table, MODEL, config, SPLIT, spark=spark, out=tmp_path)
    logs = [c.log.model_dump(exclude={"train_seconds"}) for c in (resumed, trained[2])]
    assert logs[0] == logs[1]
    digests = [{n: f.sha256 for n, f in c.files.items()} for c in (resumed, trained[2])]
    assert digests[0] == digests[1]


def _ancestor(process, pid):
    return any(p.pid == pid for p in process.parents())


def test_a_world_size_that_does_not_divide_the_streams_is_refused_at_once(spark, trained):
    told = "world size 3 does not divide num_streams = 16; use a world size of 1, 2, 4, 8 or 16 as num_proc"
    with pytest.raises(ValidationError, match=told):
        _config(3)
    with pytest.raises(LoaderError, match=told):
        evaluate(trained[1], trained[1].table, SPLIT.test, spark=spark, num_proc=3, launch=LaunchConfig(start_s=1))
