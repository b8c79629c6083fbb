"""Batches through the real engine: which rows, in which order, on which rank, from which step."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_features import NUM_EMBEDDINGS, SCHEMA, encoded_rows, open_table, write_file

from rec.core.errors import IdRangeError, LoaderError, TableError
from rec.core.schema import Column, FeatureSchema
from rec.data.config import LoaderConfig
from rec.data.decode import WindowDecoder
from rec.data.loader import make_loader

DAYS = {0: [[40, 7], [33]], 1: [[60, 60, 5]]}
CONFIG = LoaderConfig(global_batch_size=16, num_streams=8, seed=5)


def keys_of(batch) -> list[int]:
    """Return the row keys that the batch's values tell, each value checked against them."""
    keys = batch.dense_BD[:, 0].long()
    real = batch.weight_B > 0
    C1, C2, C3 = batch.values_N.view(3, -1)
    assert batch.dense_BD[:, 1].tolist() == (-batch.dense_BD[:, 0]).tolist()
    assert batch.label_B[real].tolist() == (keys % 2).float()[real].tolist()
    assert C1[real].tolist() == (3 + keys % 997)[real].tolist()
    assert C2[real].tolist() == (3 + keys * 7 % 997)[real].tolist()
    assert C3[real].tolist() == (3 + keys * 11 % 997)[real].tolist()
    assert (batch.lengths_FB == 1).all()
    return keys[real].tolist()


def epoch_keys(loader) -> list[list[int]]:
    return [keys_of(batch) for batch in loader]


def flat(lists) -> list[int]:
    return [key for keys in lists for key in keys]


def config_of(**changed) -> LoaderConfig:
    return CONFIG.model_copy(update=changed)


def test_an_epoch_is_whole_steps_of_distinct_rows_shuffled_anew_each_time(write_table):
    loader = make_loader(write_table(DAYS), [0, 1], config=CONFIG)
    epochs = [flat(epoch_keys(loader)) for _ in range(3)]
    for keys in epochs:
        assert len(keys) == len(set(keys)) == 12 * 16
        assert set(keys) <= set(range(205))
        assert keys != sorted(keys)
    assert len({tuple(keys) for keys in epochs}) == 3
    assert loader.steps_per_epoch == 12
    assert loader.counts._asdict() == {
        "num_rows": 205, "num_used": 192, "num_remainder": 13, "num_unlabelled": 0, "supplied": {},
    }  # fmt: skip


def test_a_batch_has_the_types_and_shapes_of_its_contract(write_table):
    batch = next(iter(make_loader(write_table(DAYS), [0, 1], rank=1, world_size=2, config=CONFIG)))
    tensors = {name: (tuple(t.shape), str(t.dtype)) for name, t in vars(batch).items() if t is not None}
    assert tensors == {
        "dense_BD": ((8, 2), "torch.float32"),
        "values_N": ((24,), "torch.int64"),
        "lengths_FB": ((3, 8), "torch.int32"),
        "label_B": ((8,), "torch.float32"),
        "weight_B": ((8,), "torch.float32"),
    }


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_together_read_the_global_batches_of_one_rank(write_table, world_size):
    table = write_table(DAYS)
    alone = epoch_keys(make_loader(table, [0, 1], config=CONFIG))
    ranks = [
        epoch_keys(make_loader(table, [0, 1], rank=rank, world_size=world_size, config=CONFIG))
        for rank in range(world_size)
    ]
    assert {len(keys) for rank in ranks for keys in rank} == {16 // world_size}
    assert [sorted(flat(step)) for step in zip(*ranks, strict=True)] == [sorted(step) for step in alone]


@pytest.mark.parametrize("changed", [{"num_workers": 1}, {"num_workers": 5}])
def test_worker_threads_do_not_change_the_order(write_table, changed):
    table = write_table(DAYS)
    assert epoch_keys(make_loader(table, [0, 1], config=config_of(**changed))) == epoch_keys(
        make_loader(table, [0, 1], config=CONFIG)
    )


@pytest.mark.parametrize("changed", [{"seed": 6}, {"num_window_row_groups": 3}, {"num_streams": 4}])
def test_the_settings_of_the_order_do_change_it(write_table, changed):
    table = write_table(DAYS)
    assert epoch_keys(make_loader(table, [0, 1], config=config_of(**changed))) != epoch_keys(
        make_loader(table, [0, 1], config=CONFIG)
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("step", [0, 1, 5, 11, 12, 17])
def test_resume_goes_on_exactly_on_any_world_size(write_table, step, groups):
    table, config = write_table(DAYS), config_of(num_window_row_groups=groups)
    loader = make_loader(table, [0, 1], config=config)
    whole = epoch_keys(loader) + epoch_keys(loader)
    first = make_loader(table, [0, 1], config=config)
    taken = 0
    while taken < step:
        for _ in first:
            taken += 1
            if taken == step:
                break
    state = json.loads(json.dumps(first.state()))
    for world_size in (1, 2, 8):
        ranks = []
        for rank in range(world_size):
            resumed = make_loader(table, [0, 1], rank=rank, world_size=world_size, config=config)
            resumed.restore(state)
            ranks.append(epoch_keys(resumed) + (epoch_keys(resumed) if step < 12 else []))
        together = [flat(rank_keys) for rank_keys in zip(*ranks, strict=True)]
        assert [sorted(keys) for keys in together] == [sorted(keys) for keys in whole[step:]]
        assert world_size > 1 or together == whole[step:]


def test_resume_decodes_nothing_that_was_already_used_up(write_table, monkeypatch):
    table = write_table({0: [[8] * 40]})
    config = LoaderConfig(global_batch_size=8, num_streams=4, num_workers=1)
    decoded, decode = [], WindowDecoder.decode
    monkeypatch.setattr(WindowDecoder, "decode", lambda self, w, f: decoded.append(w.num_rows) or decode(self, w, f))
    loader = make_loader(table, [0], config=config)
    loader.restore(loader.state() | {"step": 36})
    assert len(epoch_keys(loader)) == 4
    # Four steps of two rows from each of four streams, in windows of at most eight rows.
    assert 32 <= sum(decoded) <= 4 * (2 * 8 + 8)


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"seed": 1}, "seed"), ({"global_batch_size": 8}, "global_batch_size"), ({"num_streams": 2}, "num_streams")],
)
def test_a_state_of_another_order_is_refused_with_both_values(write_table, changed, field):
    table = write_table(DAYS)
    state = make_loader(table, [0, 1], config=CONFIG).state()
    message = f"{field} = {state[field]}, this run {changed[field]}"
    with pytest.raises(LoaderError, match=message):
        make_loader(table, [0, 1], config=config_of(**changed)).restore(state)


def test_a_state_of_other_days_or_beyond_the_epoch_is_refused(write_table):
    table = write_table(DAYS)
    state = make_loader(table, [0, 1], config=CONFIG).state()
    with pytest.raises(LoaderError, match=r"days = \[0, 1\], this run \[1\]"):
        make_loader(table, [1], config=CONFIG).restore(state)
    with pytest.raises(LoaderError, match="step 12, outside the 12 steps"):
        make_loader(table, [0, 1], config=CONFIG).restore(state | {"step": 12})
    for name in ("epoch", "step"):
        cut = {k: v for k, v in state.items() if k != name}
        with pytest.raises(LoaderError, match=f"{name} -1.*outside the 12 steps"):
            make_loader(table, [0, 1], config=CONFIG).restore(cut)


@pytest.mark.parametrize("world_size", [1, 4])
@pytest.mark.parametrize(("days", "steps"), [([0, 1], 13), ([0], 5), ([1], 8)])
def test_evaluation_reads_every_row_once_with_its_key_and_pads_the_last_batch(write_table, world_size, days, steps):
    table = write_table(DAYS)
    expected = [key for day, keys in ((0, range(80)), (1, range(80, 205))) if day in days for key in keys]
    seen = []
    for rank in range(world_size):
        loader = make_loader(table, days, rank=rank, world_size=world_size, config=CONFIG, evaluation=True)
        assert loader.counts.num_used == len(expected)
        batches = list(loader)
        assert len(batches) == steps == loader.steps_per_epoch
        for position, batch in enumerate(batches):
            real = batch.weight_B > 0
            assert real.all() or position == steps - 1
            assert batch.row_key_B[real].tolist() == keys_of(batch)
            assert batch.values_N.view(3, -1)[:, ~real].sum() == 0
            assert (batch.row_key_B[~real] == -1).all()
            seen += batch.row_key_B[real].tolist()
    assert sorted(seen) == expected


def test_unlabelled_rows_are_left_out_and_counted(tmp_path):
    groups = []
    for first in (0, 30, 60):
        rows = encoded_rows(first, 30)
        # One group without labels, one with some, one with all.
        label = [None if first == 30 or (first == 60 and key % 3 == 0) else key % 2 for key in range(first, first + 30)]
        groups.append(rows.set_column(1, "label", pa.array(label, pa.int32())))
    write_file(tmp_path / "t/day=0/a.parquet", groups)
    table = open_table(tmp_path / "t")
    labelled = [key for key in range(90) if key < 30 or (key >= 60 and key % 3)]
    loader = make_loader(table, [0], config=CONFIG)
    keys = flat(epoch_keys(loader))
    assert len(set(keys)) == len(keys) == 48
    assert set(keys) <= set(labelled)
    assert loader.counts[:4] == (90, 48, 2, 40)
    evaluation = make_loader(table, [0], config=CONFIG, evaluation=True)
    assert flat(epoch_keys(evaluation)) != []
    assert sorted(flat(epoch_keys(evaluation))) == labelled


@pytest.mark.parametrize("evaluation", [False, True])
def test_days_without_any_label_are_refused(tmp_path, evaluation):
    rows = encoded_rows(0, 30)
    write_file(tmp_path / "t/day=0/a.parquet", [rows.set_column(1, "label", pa.nulls(30, pa.int32()))])
    with pytest.raises(LoaderError, match=r"hold 0 labelled rows.*name days with labels"):
        make_loader(open_table(tmp_path / "t"), [0], config=CONFIG, evaluation=evaluation)


def test_fewer_rows_than_a_global_batch_are_refused_with_both_numbers(write_table):
    with pytest.raises(LoaderError, match="hold 15 labelled rows, fewer than global_batch_size = 16"):
        make_loader(write_table({0: [[15]]}), [0], config=CONFIG)


def test_a_null_is_refused_with_column_and_file(tmp_path):
    rows = encoded_rows(0, 16)
    write_file(tmp_path / "t/day=0/a.parquet", [rows.set_column(2, "I1", pa.array([1.0] * 15 + [None], pa.float32()))])
    with pytest.raises(LoaderError, match=r"day=0/a.parquet \(row group 0\): column 'I1' is null"):
        list(make_loader(open_table(tmp_path / "t"), [0], config=CONFIG))


def id_table(tmp_path, ids, num_embeddings):
    rows = encoded_rows(0, len(ids)).set_column(4, "C1", pa.array(ids, pa.int64()))
    write_file(tmp_path / "t/day=0/a.parquet", [rows])
    return open_table(
        tmp_path / "t",
        SCHEMA.replace(Column(name="C1", role="sparse", dtype="int64", num_embeddings=num_embeddings)),
    )


def test_ids_outside_their_table_are_refused_on_the_host(tmp_path, cases):
    expected = json.loads((cases / "41_embedding_index_bounds/expected.json").read_text())
    num_embeddings, config = expected["rows"], LoaderConfig(global_batch_size=4, num_streams=2)
    for k, wrong in enumerate(expected["invalid"]):
        table = id_table(tmp_path / str(k), [*expected["valid"], wrong, 0], num_embeddings)
        message = f"column 'C1' holds id {wrong}, its table has rows 0 to {num_embeddings - 1}"
        with pytest.raises(IdRangeError, match=message) as caught:
            list(make_loader(table, [0], config=config))
        assert "day=0/a.parquet" in str(caught.value)
    table = id_table(tmp_path / "valid", expected["valid"] * 2, num_embeddings)
    (batch,) = make_loader(table, [0], config=config)
    assert sorted(batch.values_N[:4].tolist()) == sorted(expected["valid"] * 2)


@pytest.mark.parametrize("wrong", [-1, NUM_EMBEDDINGS, 2**31 - 1, -(2**31)])
def test_narrow_ids_outside_their_table_are_refused_too(tmp_path, wrong):
    rows = encoded_rows(0, 16)
    ids = [*rows.column("C3").to_pylist()[:-1], wrong]
    write_file(tmp_path / "t/day=0/a.parquet", [rows.set_column(6, "C3", pa.array(ids, pa.int32()))])
    with pytest.raises(IdRangeError, match=f"column 'C3' holds id {wrong},"):
        list(make_loader(open_table(tmp_path / "t"), [0], config=CONFIG))


def test_a_column_of_a_later_day_is_supplied_as_missing_and_counted(tmp_path):
    write_file(tmp_path / "t/day=1/a.parquet", [encoded_rows(0, 32).drop_columns(["I2", "C3"])])
    write_file(tmp_path / "t/day=2/a.parquet", [encoded_rows(32, 32)])
    later = [SCHEMA[name].model_copy(update={"first_day": 2}) for name in ("I2", "C3")]
    table = open_table(tmp_path / "t", SCHEMA.replace(*later))
    loader = make_loader(table, [1, 2], config=CONFIG, evaluation=True)
    assert loader.counts.supplied == {"C3": 32, "I2": 32}
    rows = {}
    for batch in loader:
        C3 = batch.values_N.view(3, -1)[2]
        rows |= {k: (i, c) for k, i, c in zip(batch.row_key_B.tolist(), batch.dense_BD[:, 1].tolist(), C3.tolist())}
    assert {rows[key] for key in range(32)} == {(0.0, 1)}
    assert all(rows[key] == (-key, 3 + key * 11 % 997) for key in range(32, 64))


def test_a_column_of_a_later_day_that_an_earlier_file_holds_is_read_from_it(tmp_path):
    """What a chain makes of a missing value need not be 0: the table holds it, and serving replays it."""
    write_file(tmp_path / "t/day=1/a.parquet", [encoded_rows(0, 32)])
    write_file(tmp_path / "t/day=2/a.parquet", [encoded_rows(32, 32)])
    later = [SCHEMA[name].model_copy(update={"first_day": 2}) for name in ("I2", "C3")]
    loader = make_loader(open_table(tmp_path / "t", SCHEMA.replace(*later)), [1, 2], config=CONFIG, evaluation=True)
    assert loader.counts.supplied == {}
    for batch in loader:
        assert batch.dense_BD[:, 1].tolist() == [-key for key in batch.row_key_B.tolist()]
        assert batch.values_N.view(3, -1)[2].tolist() == [3 + key * 11 % 997 for key in batch.row_key_B.tolist()]


def test_a_file_removed_after_opening_is_told(write_table):
    table = write_table(DAYS)
    loader = make_loader(table, [0, 1], config=CONFIG)
    for file in Path(table.uri).glob("day=1/*.parquet"):
        file.unlink()
    with pytest.raises(TableError, match="files of this version were removed"):
        list(loader)


def test_a_damaged_page_is_told_with_its_file(write_table):
    table = write_table({0: [[64]]})
    file = next(Path(table.uri).glob("day=0/*.parquet"))
    content = bytearray(file.read_bytes())
    content[4:600] = bytes(596)
    file.write_bytes(content)
    with pytest.raises(TableError, match=r"day=0/part-0.parquet: is not a whole Parquet file"):
        list(make_loader(table, [0], config=CONFIG))


def test_no_days_at_all_are_refused(write_table):
    with pytest.raises(LoaderError, match=r"days \[\] hold 0 labelled rows"):
        make_loader(write_table(DAYS), [], config=CONFIG)


def case_table(tmp_path, folder: Path):
    """Make a table of a case's files, each row group kept; ``id`` is the row key and the first dense value."""
    for path in sorted(folder.glob("*.parquet")):
        parquet, groups = pq.ParquetFile(path), []
        for group in range(parquet.num_row_groups):
            ids = parquet.read_row_group(group).column("id").to_numpy()
            rows = [encoded_rows(int(key), 1) for key in ids]
            groups.append(pa.concat_tables(rows) if rows else encoded_rows(0, 0))
        write_file(tmp_path / "t/day=0" / path.name, groups)
    return open_table(tmp_path / "t")


def test_fewer_row_groups_than_ranks_still_give_every_rank_its_rows(tmp_path, cases):
    folder = cases / "28_rowgroups_fewer_than_shards"
    expected = json.loads((folder / "expected.json").read_text())
    table, shards = case_table(tmp_path, folder), expected["shards"]
    config = LoaderConfig(global_batch_size=shards, num_streams=shards)
    ranks = [epoch_keys(make_loader(table, [0], rank=r, world_size=shards, config=config)) for r in range(shards)]
    assert {len(steps) for steps in ranks} == {expected["rows"] // shards}
    assert sorted(key for steps in ranks for step in steps for key in step) == list(range(expected["rows"]))


@pytest.mark.parametrize("case", ["27_empty_parquet_part", "29_uneven_rowgroups"])
def test_empty_and_uneven_files_give_every_row_once(tmp_path, cases, case):
    expected = json.loads((cases / case / "expected.json").read_text())
    table = case_table(tmp_path, cases / case)
    config = LoaderConfig(global_batch_size=4, num_streams=2)
    evaluation = make_loader(table, [0], config=config, evaluation=True)
    assert sorted(flat(epoch_keys(evaluation))) == expected["ids"]
    training = make_loader(table, [0], config=LoaderConfig(global_batch_size=1, num_streams=1))
    assert sorted(flat(epoch_keys(training))) == expected["ids"]


def test_uneven_shares_of_rows_give_equal_steps_and_a_counted_remainder(write_table, cases):
    folder = cases / "39_uneven_batches"
    expected = json.loads((folder / "expected.json").read_text())
    rows_per_worker = json.loads((folder / "shards.json").read_text())["rows_per_worker"]
    table = write_table({0: [[size] for size in rows_per_worker]})
    config = LoaderConfig(global_batch_size=expected["contract_global_batch"])
    for rank in range(4):
        loader = make_loader(table, [0], rank=rank, world_size=4, config=config)
        assert sum(1 for _ in loader) == loader.steps_per_epoch == expected["contract_steps"]
        assert loader.counts.num_used == expected["contract_rows_used"]
        assert loader.counts.num_remainder == expected["contract_remainder"]
        assert loader.counts.num_rows == expected["rows_total"]


def test_a_wide_table_keeps_its_column_order(tmp_path):
    """More columns than a named tuple could once hold, in an order that is not the alphabet's."""
    names = [f"C{k}" for k in range(300, 0, -1)]
    columns = [Column(name="label", role="label", dtype="int32")]
    columns += [Column(name=name, role="sparse", dtype="int32", num_embeddings=400) for name in names]
    rows = {"label": pa.array([0] * 4, pa.int32())}
    rows |= {name: pa.array([int(name[1:])] * 4, pa.int32()) for name in sorted(names)}
    write_file(tmp_path / "t/day=0/a.parquet", [pa.table(rows)])
    table = open_table(tmp_path / "t", FeatureSchema(columns=tuple(columns)))
    (batch,) = make_loader(table, [0], config=LoaderConfig(global_batch_size=4, num_streams=2))
    assert batch.dense_BD.shape == (4, 0)
    assert batch.values_N.view(300, 4)[:, 0].tolist() == list(range(300, 0, -1))
    assert np.all(batch.lengths_FB.numpy() == 1)
