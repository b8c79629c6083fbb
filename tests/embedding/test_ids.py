"""Ids against table sizes, on the host."""

import csv
import json
import re

import pytest
import torch

from rec.core.errors import IdRangeError
from rec.embedding.ids import check_ids


def single_valued(ids_FB):
    return torch.tensor(ids_FB).reshape(-1), torch.ones(len(ids_FB), len(ids_FB[0]), dtype=torch.int32)


@pytest.fixture
def bounds(cases):
    return json.loads((cases / "41_embedding_index_bounds/expected.json").read_text())


def test_ids_inside_the_table_pass(bounds):
    check_ids(*single_valued([bounds["valid"]]), ["C1"], [bounds["rows"]])


@pytest.mark.parametrize("position", range(3))
def test_an_id_outside_is_refused_with_column_id_and_size(bounds, position):
    bad = bounds["invalid"][position]
    with pytest.raises(IdRangeError, match=rf"column C2: id {bad} is outside its table of {bounds['rows']} rows"):
        check_ids(*single_valued([[0, 0, 0], [0, bad, 9]]), ["C1", "C2"], [1, bounds["rows"]])


def test_sizes_belong_to_columns_by_name_and_not_by_place(cases):
    folder = cases / "20_slot_order"
    sizes = json.loads((folder / "sizes.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    rows = list(csv.DictReader((folder / "rows.csv").open()))
    names = expected["file_column_order"]
    ids = single_valued([[int(row[n]) for row in rows] for n in names])
    assert [sizes[n] for n in names] == expected["sizes_in_file_order"]
    check_ids(*ids, names, [sizes[n] for n in names])
    wrong = list(sizes.values())
    assert wrong != expected["sizes_in_file_order"]
    with pytest.raises(IdRangeError, match=f"column user: id {expected['max_ids']['user']} is outside its table of 5"):
        check_ids(*ids, names, wrong)


def test_the_column_of_a_list_is_found_by_the_lengths_before_it():
    values = torch.tensor([1, 2, 3, 9, 0])
    lengths = torch.tensor([[3, 0], [0, 0], [1, 1]], dtype=torch.int32)
    with pytest.raises(IdRangeError, match="column c: id 9 is outside its table of 4 rows"):
        check_ids(values, lengths, ["a", "b", "c"], [4, 4, 4])


def test_lengths_that_do_not_add_up_are_refused():
    with pytest.raises(IdRangeError, match=re.escape("3 ids for lengths that add up to 2")):
        check_ids(torch.tensor([0, 0, 0]), torch.tensor([[1, 1]]), ["a"], [1])


def test_a_batch_without_ids_passes():
    check_ids(torch.zeros(0, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int32), ["a", "b"], [1, 1])
