"""What every operator of the registry promises: the same in Spark and NumPy, whatever the rows and their order."""

import dataclasses
import json
import math
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from operator_rows import DENSE, FRAME_SCHEMA, SCHEMA, SPARSE, TRAIN_DAYS, make_rows, to_values

from rec.core.errors import ConfigError
from rec.core.schema import FeatureSchema
from rec.core.values import Values
from rec.ops.chain import Chain
from rec.ops.op import NoState, quoted
from rec.ops.pipeline import FittedPipeline, Pipeline
from rec.ops.registry import OPS, make_op

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = [(name, arguments) for name, op in OPS.items() for arguments in op.examples]
IDS = [f"{name}-{json.dumps(arguments)}" for name, arguments in CASES]
SPARK_TYPES = {"int32": "int", "int64": "bigint", "float32": "float", "float64": "double", "string": "string"}


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def frame(spark, rows):
    return spark.createDataFrame(rows, FRAME_SCHEMA).repartition(3).cache()


@pytest.fixture(scope="module")
def fitted(frame):
    """(op, columns, state) of each case, fitted on the train days."""
    found = {}
    train = frame.where(f"day IN {TRAIN_DAYS}")
    for (name, arguments), id_ in zip(CASES, IDS):
        op = make_op(name, arguments, "test")
        columns = SPARSE if op.takes == "sparse" else DENSE
        found[id_] = op, columns, op.admit(op.fit(train, columns))
    return found


def encoded_values(frame, op, columns, state):
    """Return Spark's output as {name: Values} in the order of row_key."""
    return collected(op.transform(frame, columns, state), columns)


def collected(out, columns):
    names = [c.name for c in columns]
    table = out.orderBy("row_key").select("row_key", *[quoted(n) for n in names]).toArrow()
    arrays = {}
    for place, name in enumerate(names):
        column = table.column(place + 1)
        missing_B = np.asarray(column.is_null())
        arrays[name] = Values(column.fill_null(0).to_numpy(), missing_B)
    return arrays


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_operator_declares_what_it_takes(op):
    assert any("takes" in vars(cls) for cls in op.__mro__)
    assert op.takes in ("dense", "sparse")


@pytest.mark.parametrize("case", IDS)
def test_every_operator_refuses_an_argument_of_another_type(case):
    name, arguments = CASES[IDS.index(case)]
    for field in dataclasses.fields(OPS[name]):
        for wrong in ("0", "a", [], math.nan, math.inf, True):
            given = {**arguments, field.name: wrong}
            with pytest.raises(ConfigError, match=re.escape(f"{name}: {field.name} = {wrong!r}; give ")):
                OPS[name](**given)
            with pytest.raises(ConfigError, match=re.escape(f"recipe: {name}: {field.name} = {wrong!r}; give ")):
                make_op(name, given, "recipe")


@pytest.mark.parametrize("case", [i for i, (name, _) in zip(IDS, CASES) if OPS[name].kind != "lookup"])
def test_an_operator_that_is_no_lookup_is_described_before_its_fit(fitted, case):
    op, columns, state = fitted[case]
    assert op.describe(SCHEMA, columns, NoState()) == op.describe(SCHEMA, columns, state)


@pytest.mark.parametrize("case", IDS)
def test_spark_gives_what_replay_gives(frame, rows, fitted, case):
    op, columns, state = fitted[case]
    expected = encoded_values(frame, op, columns, state)
    raw = to_values(sorted(rows), frame.columns, SCHEMA)
    replayed = op.replay(raw, columns, state)
    for column in columns:
        spark, numpy = expected[column.name], replayed[column.name]
        np.testing.assert_array_equal(spark.missing_B, numpy.missing_B, column.name)
        assert spark.data_B.dtype == numpy.data_B.dtype, column.name
        np.testing.assert_array_equal(spark.data_B, numpy.data_B, column.name)
        if numpy.data_B.dtype.kind == "f":
            assert np.isfinite(numpy.data_B).all(), column.name


@pytest.mark.parametrize("case", IDS)
def test_describe_is_the_schema_of_the_output(frame, fitted, case):
    op, columns, state = fitted[case]
    described = op.describe(SCHEMA, columns, state)
    assert described.names == SCHEMA.names
    out = op.transform(frame, columns, state)
    assert out.columns == frame.columns
    types = dict(out.dtypes)
    assert {c.name: types[c.name] for c in described.columns} == {
        c.name: SPARK_TYPES[c.dtype] for c in described.columns
    }
    if op.fills_missing:
        assert not [f.name for f in out.schema.fields if f.name in {c.name for c in columns} and f.nullable]


@pytest.mark.parametrize("case", IDS)
def test_ids_stay_below_num_embeddings(frame, fitted, case):
    op, columns, state = fitted[case]
    described = op.describe(SCHEMA, columns, state)
    sized = [c for c in described.columns if c.num_embeddings is not None]
    assert [c.name for c in sized] == ([c.name for c in columns] if op.kind == "lookup" else [])
    values = encoded_values(frame, op, columns, state)
    for column in sized:
        assert values[column.name].data_B.min() >= 1
        assert values[column.name].data_B.max() < column.num_embeddings


@pytest.mark.parametrize("case", IDS)
def test_a_stored_state_is_the_same_state(rows, frame, fitted, case):
    op, columns, state = fitted[case]
    stored = json.loads(json.dumps(state.to_json()))
    loaded = op.load_state(stored, state.arrays())
    assert loaded.canonical() == state.canonical()
    raw = to_values(rows, frame.columns, SCHEMA)
    before, after = op.replay(raw, columns, state), op.replay(raw, columns, loaded)
    for column in columns:
        np.testing.assert_array_equal(before[column.name].data_B, after[column.name].data_B)


@pytest.mark.parametrize("case", IDS)
def test_zero_rows_and_rows_without_any_value(spark, frame, fitted, case):
    op, columns, state = fitted[case]
    blank = [(1, 2, *[None] * len(SCHEMA.columns))]
    for rows in ([], blank):
        frame_of_rows = spark.createDataFrame(rows, FRAME_SCHEMA)
        expected = encoded_values(frame_of_rows, op, columns, state)
        replayed = op.replay(to_values(rows, frame.columns, SCHEMA), columns, state)
        for column in columns:
            assert len(expected[column.name].data_B) == len(rows)
            np.testing.assert_array_equal(expected[column.name].data_B, replayed[column.name].data_B)
            np.testing.assert_array_equal(expected[column.name].missing_B, replayed[column.name].missing_B)
            assert replayed[column.name].data_B.dtype == expected[column.name].data_B.dtype


@pytest.mark.parametrize("case", [i for i, (name, _) in zip(IDS, CASES) if OPS[name].is_fitted])
def test_a_fit_on_no_rows_gives_a_state(spark, frame, rows, fitted, case):
    op, columns, _ = fitted[case]
    empty = spark.createDataFrame([], FRAME_SCHEMA)
    state = op.admit(op.fit(empty, columns))
    expected = encoded_values(frame, op, columns, state)
    replayed = op.replay(to_values(sorted(rows), frame.columns, SCHEMA), columns, state)
    for column in columns:
        np.testing.assert_array_equal(expected[column.name].data_B, replayed[column.name].data_B)


@pytest.mark.parametrize("case", [i for i, (name, _) in zip(IDS, CASES) if OPS[name].is_fitted])
@pytest.mark.parametrize("num_partitions", [1, 4, 32])
def test_the_state_does_not_depend_on_partitions_or_order(spark, rows, fitted, case, num_partitions):
    op, columns, state = fitted[case]
    train = [row for row in rows if row[1] in TRAIN_DAYS]
    random.Random(num_partitions).shuffle(train)
    frame = spark.createDataFrame(train, FRAME_SCHEMA).repartition(num_partitions)
    assert op.admit(op.fit(frame, columns)).canonical() == state.canonical()


@pytest.mark.parametrize("case", [i for i, (name, _) in zip(IDS, CASES) if OPS[name].is_fitted])
def test_merged_statistics_are_those_of_all_rows(frame, fitted, case):
    op, columns, state = fitted[case]
    parts = [op.fit(frame.where(f"day IN {TRAIN_DAYS} AND row_key % 3 = {part}"), columns) for part in range(3)]
    assert op.admit(parts[0].merge(parts[1]).merge(parts[2])).canonical() == state.canonical()
    assert op.admit(parts[2].merge(parts[0].merge(parts[1]))).canonical() == state.canonical()


def test_replay_under_the_servers_numpy_gives_what_spark_stored(frame, rows, fitted, tmp_path):
    """The serving environment has numpy 1.26 and neither Spark nor Arrow."""
    python = REPOSITORY / ".venv-serve/bin/python"
    if not python.exists():
        pytest.skip("no .venv-serve: make it with deploy/install.sh")
    raw = to_values(sorted(rows), frame.columns, SCHEMA)
    for place, case in enumerate(IDS):
        op, columns, state = fitted[case]
        if op.fills_missing:
            _store(tmp_path / f"{place}", op, columns, state, raw, frame)
    run = subprocess.run(
        [python, REPOSITORY / "tests/contract/replay_stored.py", tmp_path], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "wrong 0" in run.stdout


def _store(folder, op, columns, state, raw, frame):
    schema = FeatureSchema(columns=tuple(columns))
    pipeline = Pipeline(Chain(tuple(columns), (op,)))
    states = ((state,),)
    fitted = FittedPipeline(
        root="", schema=schema, pipeline=pipeline, states=states, days=TRAIN_DAYS, state_id=pipeline.state_id(states)
    )
    fitted.save(folder / "fitted")
    content = {}
    out = fitted.transform(frame.select("row_key", *[quoted(c.name) for c in columns]))
    for name, values in collected(out, columns).items():
        content[f"encoded {name}"] = values.data_B
    for column in columns:
        values = raw[column.name]
        data_B = values.data_B
        if column.role == "sparse":
            content[f"ends {column.name}"] = np.cumsum([len(v) for v in data_B])
            data_B = np.frombuffer(b"".join(data_B), np.uint8)
        content[f"raw {column.name}"] = data_B
        content[f"missing {column.name}"] = values.missing_B
    np.savez(folder / "rows.npz", **content)
