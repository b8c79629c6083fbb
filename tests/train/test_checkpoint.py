"""Damage, gaps, unshared folders, and reading by slices."""

import os
import re
import resource
import shutil
import signal

import pytest
import torch
from planted_table import planted_day, write_table
from safetensors.torch import save_file

from rec.core.errors import CheckpointError
from rec.core.tables import Days
from rec.model.config import DLRMConfig
from rec.train.checkpoint import BlockReader, StoredBlock, complete_checkpoints, load_model, open_checkpoint
from rec.train.checkpoint_folder import CheckpointFolder
from rec.train.config import TrainConfig
from rec.train.records import TrainingJob
from rec.train.trainer import train


def make_job(folder) -> TrainingJob:
    table = write_table(folder / "features", planted_day(0, 600))
    return TrainingJob(
        table=table,
        days=Days(train=(0,)),
        model=DLRMConfig(embedding_dim=4),
        config=TrainConfig(global_batch_size=128, num_streams=4),
        folder=str(folder / "out"),
    )


@pytest.fixture(scope="module")
def written(one_rank, tmp_path_factory):
    """The folder of a one-epoch training."""
    return one_rank.run(train, make_job(tmp_path_factory.mktemp("checkpoint")))[0].path


@pytest.fixture
def copy(written, tmp_path):
    return shutil.copytree(written, tmp_path / "copy")


@pytest.mark.parametrize("name", ["dense.safetensors", "shard_00000.safetensors"])
def test_one_flipped_bit_is_found_and_the_file_named(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[-3] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(
        CheckpointError, match=rf"copy/{name}: sha256 is \w+, the manifest says \w+; the file is damaged"
    ):
        load_model(open_checkpoint(copy))


def test_a_lost_file_is_named(copy):
    (copy / "shard_00000.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"shard_00000\.safetensors: no such file, but the manifest lists it"):
        load_model(open_checkpoint(copy))


def test_without_its_manifest_a_folder_is_no_checkpoint(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="is no complete checkpoint"):
        open_checkpoint(copy)
    assert complete_checkpoints(copy.parent) == []


def test_half_a_manifest_is_refused(copy):
    content = (copy / "manifest.json").read_text()
    (copy / "manifest.json").write_text(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=r"manifest\.json: not a manifest"):
        open_checkpoint(copy)


def test_nothing_in_a_checkpoint_is_pickled(written):
    assert {p.rpartition(".")[2] for p in os.listdir(written)} == {"json", "safetensors"}


def open_own_folder(ranks, root):
    return CheckpointFolder(f"{root}/rank{ranks.rank}", ranks)


def test_a_folder_that_ranks_do_not_share_is_refused_by_host_and_path(two_ranks, tmp_path):
    answers = two_ranks.try_run(open_own_folder, str(tmp_path))
    for answer in answers:
        assert isinstance(answer, CheckpointError)
        host = os.uname().nodename
        assert f"checkpoint folder {tmp_path}/rank0 on host {host} (rank 0) is not the one that rank 1 sees" in str(
            answer
        )
    assert [list(p.iterdir()) for p in tmp_path.iterdir()] == [[], []]


def train_with_little_room(ranks, job, num_bytes):
    """Train where no file may grow beyond a size, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        return train(ranks, job)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_with_the_file_and_leaves_no_checkpoint(one_rank, tmp_path):
    [error] = one_rank.try_run(train_with_little_room, make_job(tmp_path), 1_000)
    assert isinstance(error, CheckpointError)
    assert re.search(
        r"step_\d+/(shard_00000|dense)\.safetensors: cannot be written: .*; free space or give another folder",
        str(error),
    )
    assert not complete_checkpoints(tmp_path / "out")


@pytest.fixture
def cut(written, tmp_path):
    """A checkpoint whose table "t" of 10 x 8 is stored in four blocks, its momentum in two row ranges."""
    weight, momentum1 = torch.arange(80.0).view(10, 8), torch.arange(10.0)
    blocks, tensors = [], {}
    for rows in ((0, 3), (3, 10)):
        for columns in ((0, 4), (4, 8)):
            key = f"t/weight/{rows[0]}/{columns[0]}"
            tensors[key] = weight[slice(*rows), slice(*columns)].contiguous()
            blocks.append(
                StoredBlock(table="t", part="weight", rows=rows, columns=columns, file="x.safetensors", key=key)
            )
        key = f"t/momentum1/{rows[0]}"
        tensors[key] = momentum1[slice(*rows)].contiguous()
        blocks.append(
            StoredBlock(table="t", part="momentum1", rows=rows, columns=(0, 8), file="x.safetensors", key=key)
        )
    save_file(tensors, tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(written).model_copy(update={"path": str(tmp_path), "shards": tuple(blocks)})
    return checkpoint, weight, momentum1


@pytest.mark.parametrize("rows", [(0, 10), (2, 5), (4, 4 + 1), (0, 3)])
@pytest.mark.parametrize("columns", [(0, 8), (3, 6), (4, 8)])
def test_any_block_is_read_from_the_blocks_that_overlap_it(cut, rows, columns):
    checkpoint, weight, momentum1 = cut
    read = BlockReader(checkpoint)
    assert torch.equal(read("t", "weight", rows, columns), weight[slice(*rows), slice(*columns)])
    assert torch.equal(read("t", "momentum1", rows, (0, 8)), momentum1[slice(*rows)])


def test_rows_that_no_shard_holds_are_named(cut):
    checkpoint, _, _ = cut
    with pytest.raises(CheckpointError, match=r"table 't' weight rows \[8, 12\].*hold 16 of 32 numbers"):
        BlockReader(checkpoint)("t", "weight", (8, 12), (0, 8))
    with pytest.raises(CheckpointError, match=r"table 'u' weight .*the shards hold nothing"):
        BlockReader(checkpoint)("u", "weight", (0, 1), (0, 8))
