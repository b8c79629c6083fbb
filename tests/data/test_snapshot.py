"""What a version of a table is found to hold, or refused for, before anything is decoded."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from made_features import SCHEMA, encoded_rows, open_table, write_file

from rec.core.errors import DayError, LoaderError, SchemaDriftError, TableError
from rec.core.schema import Column, FeatureSchema
from rec.data.layout import Layout
from rec.data.snapshot import list_files, read_snapshot

LAYOUT = Layout.of(SCHEMA, with_row_key=False)


def unlabelled(rows: pa.Table, positions: list[int]) -> pa.Table:
    label = rows.column("label").to_pylist()
    for position in positions:
        label[position] = None
    return rows.set_column(rows.schema.get_field_index("label"), "label", pa.array(label, pa.int32()))


def edit_log(root: str, change) -> None:
    log = Path(root) / "_delta_log/00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("\n".join(json.dumps(action) for action in actions))


def test_version_whose_files_were_removed_is_refused_and_the_others_read(cases):
    folder = cases / "33_delta_vacuum_time_travel"
    expected = json.loads((folder / "expected.json").read_text())["versions"]
    for version, keys in expected.items():
        if isinstance(keys, str):
            with pytest.raises(TableError, match=f"version {version}: files of this version were removed"):
                list_files(str(folder / "table"), int(version))
        else:
            _, files = list_files(str(folder / "table"), int(version))
            assert sorted(np.concatenate([pq.read_table(file.path).column("k") for file in files])) == keys


def test_vacuumed_days_are_told_from_days_that_are_whole(write_table):
    table = write_table({1: [[5]], 2: [[5]]})
    next(Path(table.uri).glob("day=1/*.parquet")).unlink()
    assert read_snapshot(table, [2], LAYOUT).num_rows == 5
    with pytest.raises(TableError, match=r"files of this version were removed, part-0.parquet is one"):
        read_snapshot(table, [1, 2], LAYOUT)


def test_row_groups_are_counted_file_by_file_in_table_order(write_table):
    snapshot = read_snapshot(write_table({7: [[4, 2, 3], [1]], 3: [[5]]}), [3, 7], LAYOUT)
    assert snapshot.num_rows_R.tolist() == [5, 4, 2, 3, 1]
    assert snapshot.file_R.tolist() == [0, 1, 1, 1, 2]
    assert snapshot.group_R.tolist() == [0, 0, 1, 2, 0]


@pytest.mark.parametrize("write_statistics", [True, False])
def test_unlabelled_rows_are_counted_with_and_without_statistics_in_the_footer(tmp_path, write_statistics):
    groups = [unlabelled(encoded_rows(0, 6), [1, 4]), encoded_rows(6, 3), unlabelled(encoded_rows(9, 2), [0, 1])]
    write_file(tmp_path / "t/day=0/a.parquet", groups, write_statistics=write_statistics)
    snapshot = read_snapshot(open_table(tmp_path / "t"), [0], LAYOUT)
    assert snapshot.num_rows_R.tolist() == [6, 3, 2]
    assert snapshot.num_labelled_R.tolist() == [4, 3, 0]


def test_a_folder_with_a_space_and_an_accent_in_its_name_is_read(write_table):
    assert read_snapshot(write_table({0: [[3]]}, name="my lâke"), [0], LAYOUT).num_rows == 3


def test_only_the_files_of_the_asked_version_count(write_table):
    table = write_table({0: [[3]]})
    rows = encoded_rows(3, 4).append_column("day", pa.array([0] * 4, pa.int32()))
    write_deltalake(table.uri, rows, mode="append")
    assert read_snapshot(table, [0], LAYOUT).num_rows == 3
    assert DeltaTable(table.uri).version() == 1


def test_a_day_that_is_not_there_is_refused_with_those_that_are(write_table):
    with pytest.raises(DayError, match=r"day 9 is not in the table; it holds days \[1, 2\]"):
        read_snapshot(write_table({1: [[2]], 2: [[2]]}), [1, 9], LAYOUT)


def test_a_version_that_is_not_there_is_refused_with_the_newest(write_table):
    table = write_table({0: [[2]]})
    with pytest.raises(TableError, match=r"version 4: cannot be opened .* the newest version is 0"):
        list_files(table.uri, 4)


def test_a_folder_without_a_table_is_refused(tmp_path):
    with pytest.raises(TableError, match="no Delta table is there"):
        list_files(str(tmp_path), 0)


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_table_feature_that_moves_rows_or_names_is_refused_by_name(write_table, feature):
    table = write_table({0: [[2]]})
    names = {"readerFeatures": [feature], "writerFeatures": [feature]}

    def enable(action):
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **names}

    edit_log(table.uri, enable)
    with pytest.raises(TableError, match=f"table feature '{feature}' is on"):
        list_files(table.uri, 0)


def test_column_mapping_of_the_second_reader_version_is_refused_by_name(write_table):
    table = write_table({0: [[2]]})

    def enable(action):
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}

    edit_log(table.uri, enable)
    with pytest.raises(TableError, match="table feature 'columnMapping' is on"):
        list_files(table.uri, 0)


def test_a_truncated_file_is_refused_by_name(write_table):
    table = write_table({0: [[20], [20]]})
    file = next(Path(table.uri).glob("day=0/part-1.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TableError, match=r"day=0/part-1.parquet: is not a whole Parquet file"):
        read_snapshot(table, [0], LAYOUT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop_columns("C2"), "column 'C2' is not in the file"),
        (lambda rows: rows.drop_columns("label"), "column 'label' is not in the file"),
        (
            lambda rows: rows.set_column(2, "I1", rows.column("I1").cast(pa.float64())),
            "column 'I1' is double, the table's schema says float32",
        ),
        (
            lambda rows: rows.set_column(4, "C1", rows.column("C1").cast(pa.string())),
            "column 'C1' is string, the table's schema says int32",
        ),
    ],
)
def test_a_file_whose_columns_drifted_is_refused_with_file_and_column(tmp_path, change, message):
    write_file(tmp_path / "t/day=0/a.parquet", [encoded_rows(0, 4)])
    table = open_table(tmp_path / "t")
    # What a file holds is not what the log says of it: a writer outside Delta, or a log written by hand.
    write_file(tmp_path / "t/day=0/a.parquet", [change(encoded_rows(0, 4))])
    with pytest.raises(SchemaDriftError, match=message) as caught:
        read_snapshot(table, [0], LAYOUT)
    assert "day=0/a.parquet" in str(caught.value)


def test_a_reordered_file_is_read_by_name(tmp_path):
    rows = encoded_rows(0, 4)
    write_file(tmp_path / "t/day=0/a.parquet", [rows.select(rows.column_names[::-1])])
    assert read_snapshot(open_table(tmp_path / "t"), [0], LAYOUT).num_rows == 4


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column(name="C1", role="sparse", dtype="string", key="hex32"), "column 'C1' is string"),
        (Column(name="C1", role="sparse", dtype="int32"), "column 'C1': num_embeddings = None"),
        (Column(name="I1", role="dense", dtype="int64"), "column 'I1' is int64"),
    ],
)
def test_a_schema_that_was_not_encoded_is_refused(column, message):
    with pytest.raises(LoaderError, match=message):
        Layout.of(SCHEMA.replace(column), with_row_key=False)


def test_a_schema_without_a_label_is_refused():
    columns = tuple(column for column in SCHEMA.columns if column.role != "label")
    with pytest.raises(SchemaDriftError, match="no label column"):
        Layout.of(FeatureSchema(columns=columns), with_row_key=False)
