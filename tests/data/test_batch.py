"""How rows of blocks become the tensors of a batch."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_features import open_table, write_file

from rec.core.errors import IdRangeError, LoaderError
from rec.core.schema import Column, FeatureSchema
from rec.data.batch import Ragged
from rec.data.config import LoaderConfig
from rec.data.loader import make_loader

CONFIG = LoaderConfig(global_batch_size=8, num_streams=4)


def list_schema(**changed) -> FeatureSchema:
    hist = {"name": "hist", "role": "sparse", "dtype": "list<int64>", "num_embeddings": 10} | changed
    return FeatureSchema(
        columns=(
            Column(name="row_key", role="row_key", dtype="int64"),
            Column(name="label", role="label", dtype="int32"),
            Column(name="C1", role="sparse", dtype="int32", num_embeddings=100),
            Column(**hist),
            Column(name="C2", role="sparse", dtype="int64", num_embeddings=2**33),
        )
    )


def list_table(tmp_path, lists, schema=None, element=None):
    n = len(lists)
    columns = {
        "row_key": pa.array(range(n), pa.int64()),
        "label": pa.array([0] * n, pa.int32()),
        "C1": pa.array(range(n), pa.int32()),
        "hist": pa.array(lists, pa.list_(element or pa.int64())),
        "C2": pa.array([2**32 + k for k in range(n)], pa.int64()),
    }
    write_file(tmp_path / "t/day=0/a.parquet", [pa.table(columns)])
    return open_table(tmp_path / "t", schema or list_schema())


@pytest.fixture
def ragged_case(cases):
    folder = cases / "30_ragged_list_column"
    lists = pq.read_table(folder / "data.parquet").column("hist").to_pylist()
    return lists, json.loads((folder / "expected.json").read_text())


def test_lists_of_any_length_come_as_values_and_lengths_beside_single_ids(tmp_path, ragged_case):
    lists, expected = ragged_case
    (batch,) = make_loader(list_table(tmp_path, lists), [0], config=CONFIG, evaluation=True)
    n = expected["rows"]
    assert int(batch.weight_B.sum()) == n
    # A missing list and an empty one both have length 0; padding rows have no list and one padding id.
    assert batch.lengths_FB.tolist() == [[1] * 8, expected["lengths"] + [0] * 3, [1] * 8]
    c1, hist, c2 = batch.values_N.split([int(lengths.sum()) for lengths in batch.lengths_FB])
    assert c1.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    assert hist.tolist() == expected["values"]
    assert c2.tolist() == [2**32 + k for k in range(5)] + [0] * 3
    assert batch.row_key_B.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


@pytest.mark.parametrize("element", [pa.int32(), pa.int64()])
def test_shuffled_lists_stay_with_their_rows(tmp_path, element):
    # The list of row k is k mod 4 times the id k mod 10.
    schema = list_schema(dtype=f"list<{element}>")
    table = list_table(tmp_path, [[k % 10] * (k % 4) for k in range(64)], schema, element)
    seen = []
    for batch in make_loader(table, [0], config=CONFIG):
        rows = batch.values_N[:8].tolist()
        assert batch.lengths_FB[1].tolist() == [row % 4 for row in rows]
        hist = batch.values_N[8:-8].tolist()
        assert hist == [row % 10 for row in rows for _ in range(row % 4)]
        seen += rows
    assert sorted(seen) == list(range(64))
    assert seen != sorted(seen)


def test_an_id_in_a_list_is_checked_against_its_table(tmp_path):
    table = list_table(tmp_path, [[1], [2, 10]] * 4)
    with pytest.raises(IdRangeError, match="column 'hist' holds id 10, its table has rows 0 to 9"):
        list(make_loader(table, [0], config=CONFIG))


def test_a_null_inside_a_list_is_refused(tmp_path):
    with pytest.raises(LoaderError, match="column 'hist' holds a null inside a list"):
        list(make_loader(list_table(tmp_path, [[1, None]] * 8), [0], config=CONFIG))


def test_a_list_column_of_a_later_day_is_supplied_as_empty_lists(tmp_path):
    list_table(tmp_path, [[1]] * 8)
    rows = pq.read_table(tmp_path / "t/day=0/a.parquet", partitioning=None)
    write_file(tmp_path / "earlier/day=0/a.parquet", [rows.drop_columns(["hist"])])
    table = open_table(tmp_path / "earlier", list_schema(first_day=3))
    loader = make_loader(table, [0], config=CONFIG)
    (batch,) = loader
    assert batch.lengths_FB[1].tolist() == [0] * 8
    assert loader.counts.supplied == {"hist": 8}


def test_rows_of_a_ragged_column_come_in_the_order_of_their_places():
    ragged = Ragged(np.array([7, 8, 9, 5]), start_C=np.array([3, 0, 0, 1]), length_C=np.array([1, 0, 3, 2]))
    values, lengths = ragged.rows(0, 4)
    assert values.tolist() == [5, 7, 8, 9, 8, 9]
    assert lengths.tolist() == [1, 0, 3, 2]
    assert ragged.rows(1, 2)[0].tolist() == []
