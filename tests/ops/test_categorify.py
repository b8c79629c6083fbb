"""Ids: what each means, in which order they are given, and that the way of looking them up never shows."""

import csv
import json

import numpy as np
import pytest

from rec.core.errors import ConfigError, InputError
from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.categorify import Categorify
from rec.ops.counting import CountStatistics
from rec.ops.lookup import broadcast_heads

TEXT = (Column(name="cat", role="sparse", dtype="string", key="string"),)
HEX = (Column(name="C", role="sparse", dtype="string", key="hex32"),)


def read_csv(path, column):
    with open(path, newline="") as file:
        return [row[column] or None for row in csv.DictReader(file)]


def fitted(spark, values, columns=TEXT, **arguments):
    sql_type = "BIGINT" if columns[0].key == "int64" else "STRING"
    df = spark.createDataFrame([(0, v) for v in values], f"day INT, {columns[0].name} {sql_type}")
    op = Categorify(**arguments)
    return op, op.admit(op.fit(df, columns)), df


def encode_both(spark, op, state, columns, values):
    """Return the ids of Spark, after checking that replay gives the same."""
    name = columns[0].name
    sql_type = "BIGINT" if columns[0].key == "int64" else "STRING"
    df = spark.createDataFrame([(k, v) for k, v in enumerate(values)], f"row_key BIGINT, {name} {sql_type}")
    ids = [row[1] for row in op.transform(df, columns, state).orderBy("row_key").collect()]
    data_B = np.empty(len(values), object)
    data_B[:] = [b"" if v is None else str(v).encode() for v in values]
    raw = {name: Values(data_B, np.array([v is None for v in values], bool))}
    assert op.replay(raw, columns, state)[name].data_B.tolist() == ids
    return ids


def vocabulary(state, name):
    keys = state.columns[name].keys
    values = keys.values() if hasattr(keys, "values") else keys.keys_V.tolist()
    return dict(zip(values, keys.ids_V.tolist()))


def test_padding_missing_and_unseen_have_ids_of_their_own(spark, cases):
    folder = cases / "15_null_oov_pad"
    expected = json.loads((folder / "expected.json").read_text())
    train = read_csv(folder / "train.csv", "cat")
    op, state, _ = fitted(spark, train)
    assert vocabulary(state, "cat") == {value.encode(): id_ for value, id_ in expected["vocab"].items()}
    assert encode_both(spark, op, state, TEXT, train) == expected["train_ids"]
    assert encode_both(spark, op, state, TEXT, read_csv(folder / "serve.csv", "cat")) == expected["serve_ids"]
    assert state.columns["cat"].num_embeddings == max(expected["vocab"].values()) + 1


@pytest.mark.parametrize("key", ["int64", "string"])
def test_an_unseen_value_never_gets_its_neighbours_id(spark, cases, key):
    folder = cases / "16_unseen_nearest"
    expected = json.loads((folder / "expected.json").read_text())
    columns = (Column(name="uid", role="sparse", dtype="int64" if key == "int64" else "string", key=key),)
    convert = int if key == "int64" else str
    train, valid = ([convert(v) for v in read_csv(folder / f"{part}.csv", "uid")] for part in ("train", "valid"))
    op, state, _ = fitted(spark, train, columns)
    assert {str(k if key == "int64" else k.decode()): i for k, i in vocabulary(state, "uid").items()} == expected[
        "vocab"
    ]
    assert encode_both(spark, op, state, columns, valid) == expected["valid_ids"]


def test_a_batch_without_any_value_is_all_missing(spark, cases):
    folder = cases / "17_all_null_column"
    expected = json.loads((folder / "expected.json").read_text())
    op, state, _ = fitted(spark, read_csv(folder / "fit.csv", "cat"))
    assert encode_both(spark, op, state, TEXT, read_csv(folder / "serve.csv", "cat")) == expected["ids"]
    assert encode_both(spark, op, state, TEXT, []) == []


@pytest.mark.parametrize(("name", "key"), [("no_nulls", "int64"), ("some_nulls", "string")])
def test_counts_tell_missing_from_values_and_add_up(spark, cases, name, key):
    folder = cases / "18_null_counts"
    expected = json.loads((folder / "expected.json").read_text())[name]
    columns = (Column(name="u", role="sparse", dtype="int64" if key == "int64" else "string", key=key),)
    values = [v if v is None or key == "string" else int(v) for v in read_csv(folder / f"{name}.csv", "u")]
    op, _, df = fitted(spark, values, columns)
    rows = op.count(df, columns).collect()
    missing = [r["count"] for r in rows if r["key"] is None and r["value"] is None]
    present = {str(r["value"] if key == "string" else r["key"]): r["count"] for r in rows}
    present.pop("None", None)
    assert sum(missing) == expected["missing"]
    assert present == expected["counts"]
    assert sum(r["count"] for r in rows) == expected["rows"]


def test_hex_values_are_unsigned_and_zero_is_a_value(spark, cases):
    expected = json.loads((cases / "12_hex_uint32_sign/expected.json").read_text())
    op, state, _ = fitted(spark, expected["C1"], HEX)
    assert vocabulary(state, "C") == {key: i for i, key in enumerate(sorted(expected["unsigned"]), 3)}
    ids = encode_both(spark, op, state, HEX, [*expected["C1"], None, "00000001"])
    assert sorted(ids) == [1, 2, 3, 4, 5, 6, 7]


def test_hex_values_that_look_like_numbers_stay_apart(spark, cases):
    expected = json.loads((cases / "13_hex_looks_numeric/expected.json").read_text())
    op, state, _ = fitted(spark, expected["C2"], HEX)
    assert len(set(encode_both(spark, op, state, HEX, expected["C2"]))) == expected["distinct"]


@pytest.mark.parametrize("key", ["hex32", "int64", "string"])
def test_ids_go_by_count_then_value(spark, key):
    columns = (Column(name="C", role="sparse", dtype="int64" if key == "int64" else "string", key=key),)
    values = {
        "hex32": ["ffffffff", "80000000", "7fffffff", "00000000"],
        "int64": [2**63 - 1, 5, -1, -(2**63)],
        "string": ["日", "é", "b", "B"],
    }[key]
    one, two, three, four = values
    op, state, _ = fitted(spark, [one, two, two, three, three, four, four, four, None, None, None, None], columns)
    assert list(encode_both(spark, op, state, columns, values)) == [6, 5, 4, 3]


def test_threshold_and_size_limit_leave_the_rest_unseen(spark):
    values = ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"]
    op, state, _ = fitted(spark, values, freq_threshold=2, max_size=2)
    assert encode_both(spark, op, state, TEXT, ["a", "b", "c", "d"]) == [3, 4, 2, 2]
    assert state.columns["cat"].num_embeddings == 5


def test_a_later_fit_keeps_every_id_and_appends(spark):
    op, first, _ = fitted(spark, ["a", "a", "b", "b", "b", "c"], freq_threshold=2)
    df = spark.createDataFrame([(1, v) for v in ["z", "z", "c", "c", "c", "a"]], "day INT, cat STRING")
    grown = op.admit(op.fit(df, TEXT), previous=first)
    assert vocabulary(first, "cat") == {b"b": 3, b"a": 4}
    assert vocabulary(grown, "cat") == {b"b": 3, b"a": 4, b"c": 5, b"z": 6}


@pytest.fixture(scope="module")
def skewed(spark):
    """Three columns of 40, 400 and 90 values over days, keys of each kind, missing among them."""
    rows = [
        (k, 0, f"{k * k % 40:08x}" if k % 9 else None, (k * 7919) % 400 - 200 if k % 7 else None, f"v{k % 90}")
        for k in range(3000)
    ]
    return spark.createDataFrame(rows, "row_key BIGINT, day INT, h STRING, n BIGINT, s STRING").cache()


def replayed(op, columns, state, rows):
    """Return the ids of collected rows by NumPy alone."""
    raw = {}
    for column in columns:
        data_B = np.empty(len(rows), object)
        data_B[:] = [b"" if row[column.name] is None else str(row[column.name]).encode() for row in rows]
        raw[column.name] = Values(data_B, np.array([row[column.name] is None for row in rows]))
    ids = op.replay(raw, columns, state)
    return list(zip(*(ids[column.name].data_B.tolist() for column in columns)))


@pytest.mark.parametrize("on_gpu", [False, True], ids=["arrays", "joins"])
@pytest.mark.parametrize("broadcast_max_values", [0, 1, 16, 60, 1_000_000])
def test_every_way_of_looking_up_gives_the_same_ids(skewed, monkeypatch, broadcast_max_values, on_gpu):
    monkeypatch.setattr("rec.ops.categorify._is_on_gpu", lambda df: on_gpu)
    columns = (
        Column(name="h", role="sparse", dtype="string", key="hex32"),
        Column(name="n", role="sparse", dtype="int64", key="int64"),
        Column(name="s", role="sparse", dtype="string", key="string"),
    )
    train = skewed.where("row_key % 5 < 4 AND coalesce(n, 0) % 3 <> 0")
    reference = Categorify(freq_threshold=2)
    state = reference.admit(reference.fit(train, columns))
    expected = replayed(reference, columns, state, skewed.orderBy("row_key").collect())
    op = Categorify(freq_threshold=2, broadcast_max_values=broadcast_max_values)
    out = op.transform(skewed, columns, state)
    assert [(r["h"], r["n"], r["s"]) for r in out.orderBy("row_key").collect()] == expected
    plan = out._jdf.queryExecution().optimizedPlan().toString()
    assert ("tail_id" in plan) == (broadcast_max_values < 400)
    assert ("xxhash64" in plan) == (broadcast_max_values >= 16 and not on_gpu)


def test_hex_values_may_come_as_their_numbers(spark):
    op, state, df = fitted(spark, ["00000001", "ffffffff", "ffffffff", None], HEX)
    numbers = df.selectExpr("day", "CAST(conv(C, 16, 10) AS BIGINT) AS C")
    assert op.admit(op.fit(numbers, HEX)).canonical() == state.canonical()
    encoded = op.transform(numbers, HEX, state).collect()
    assert [row["C"] for row in encoded] == [row["C"] for row in op.transform(df, HEX, state).collect()] == [4, 3, 3, 1]


def test_the_smallest_columns_are_broadcast_whole():
    sizes = {"a": 10, "b": 100, "c": 30, "d": 60, "e": 45}
    assert broadcast_heads(sizes, 50) == {"a": None, "c": None, "e": None, "d": 50, "b": 50}
    assert broadcast_heads(sizes, 20) == {"a": None, "b": 17, "c": 17, "d": 17, "e": 17}


def test_a_frame_without_row_key_cannot_take_large_columns(spark):
    _, state, df = fitted(spark, ["a", "b"])
    with pytest.raises(ConfigError, match="row_key"):
        Categorify(broadcast_max_values=0).transform(df, TEXT, state)


def test_replay_refuses_a_value_without_a_key(spark):
    op, state, _ = fitted(spark, ["00000001"], HEX)
    raw = {"C": Values(np.array([b"0000000g"], object), np.array([False]))}
    with pytest.raises(InputError, match="C: b'0000000g'"):
        op.replay(raw, HEX, state)


def test_statistics_merge_across_frames(spark):
    op, _, df = fitted(spark, ["a", "b", None])
    merged = op.fit(df, TEXT).merge(op.fit(df, TEXT))
    assert isinstance(merged, CountStatistics)
    assert sorted((r["value"] or "", r["count"]) for r in merged.frame.collect()) == [("", 2), ("a", 2), ("b", 2)]
