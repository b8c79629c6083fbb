"""Goldens: rows that touch every edge of the encoding, each as Spark encoded it."""

import numpy as np
import pytest
from make_source import make_pipeline, make_rows, make_source

from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.etl.fit import fit_features
from rec.etl.sink import write_features
from rec.ops.categorify import Categorify
from rec.ops.fill_missing import FillMissing
from rec.ops.pipeline import Pipeline

MIXED = FeatureSchema(
    columns=(
        Column(name="label", role="label", dtype="int32"),
        Column(name="x", role="dense", dtype="float64"),
        Column(name="n", role="sparse", dtype="int64", key="int64"),
        Column(name="t", role="sparse", dtype="string", key="string"),
    )
)


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("goldens")
    source = make_source(spark, {0: make_rows(0, 40), 1: make_rows(1, 30)})
    fitted = fit_features(source, make_pipeline(), root / "small", [0])
    write_features(source, fitted)
    rows = [(0, k / 3, k % 5 - 2, f"v{k % 3}") for k in range(400)]
    mixed = make_source(spark, {0: rows}, schema=MIXED)
    pipeline = Pipeline(MIXED.dense >> FillMissing(0), MIXED.sparse >> Categorify())
    other = fit_features(mixed, pipeline, root / "mixed", [0])
    write_features(mixed, other)
    return {"small": fitted, "mixed": other}


@pytest.mark.parametrize("name", ["small", "mixed"])
def test_goldens_reach_every_edge_and_replay_gives_them(spark, lake, name):
    fitted = lake[name]
    rows = spark.read.format("delta").load(f"{fitted.root}/goldens").orderBy("golden_id").collect()
    assert [r["golden_id"] for r in rows] == list(range(len(rows)))
    assert len(rows) >= 256
    assert {r["state_id"] for r in rows} == {fitted.state_id}
    for column in fitted.encoded_schema.sparse:
        ids = {r[column.name] for r in rows}
        assert ids >= {1, 2, 3, column.num_embeddings - 1}
    raw = {}
    for column in (*fitted.schema.dense, *fitted.schema.sparse):
        given = [r[f"raw_{column.name}"] for r in rows]
        missing_B = np.array([v is None for v in given])
        if column.role == "dense":
            assert missing_B.any()
            assert min(v for v in given if v is not None) < 0
            if column.dtype == "int64":
                assert {2**63 - 1, -(2**63)} <= set(given)
            data_B = np.array([0 if v is None else v for v in given], column.dtype)
        else:
            data_B = np.empty(len(given), object)
            data_B[:] = [b"" if v is None else v.encode() for v in given]
        raw[column.name] = Values(data_B, missing_B)
    for name_, values in fitted.replay(raw).items():
        np.testing.assert_array_equal(values.data_B, [r[name_] for r in rows], name_)


def test_real_rows_are_among_them(spark, lake):
    rows = spark.read.format("delta").load(f"{lake['small'].root}/goldens").collect()
    real = {row[3] for row in make_rows(0, 40)}
    assert real <= {r["raw_C1"] for r in rows}
