"""Counting: packed beside the column's number or by (column, key), the rows are the same."""

from collections import Counter

import pytest

from rec.core.schema import Column
from rec.ops.counting import HEX32_RANGE, count_rows, observed_ranges, split_columns

LOW, HIGH = -(2**63), 2**63 - 1


def int_columns(num_columns):
    return tuple(Column(name=f"c{i}", role="sparse", dtype="int64", key="int64") for i in range(num_columns))


def frame_of(spark, values, num_columns):
    """One column of ``values``, the others constant or missing."""
    ddl = ", ".join(["day INT", *[f"c{i} BIGINT" for i in range(num_columns)]])
    rows = [(day, value, *[i if i % 2 else None for i in range(1, num_columns)]) for day, value in values]
    return spark.createDataFrame(rows, ddl)


def counted(rows):
    return {(r["day"], r["column"], r["key"], r["value"]): r["count"] for r in rows.collect()}


@pytest.mark.parametrize("num_columns", [1, 2, 64, 65])
@pytest.mark.parametrize("edge", [2**57, 2**58, -1, LOW, HIGH])
def test_packed_counts_equal_plain_counts(spark, num_columns, edge):
    values = [(day, v) for day, v in [(0, edge), (0, edge), (0, None), (1, edge), (1, 0), (1, edge // 2)]]
    df = frame_of(spark, values, num_columns)
    columns = int_columns(num_columns)
    packed = counted(count_rows(df, columns, observed_ranges(df, columns)))
    assert packed == counted(count_rows(df, columns, {}))
    expected = Counter((day, "c0", v, None) for day, v in values)
    assert {key: n for key, n in packed.items() if key[1] == "c0"} == expected


@pytest.mark.parametrize(
    ("num_columns", "width", "is_packed"),
    [
        (1, 63, True),
        (1, 64, False),
        (63, 58, True),
        (64, 57, True),
        (64, 58, False),
        (65, 57, True),
        (127, 57, True),
        (128, 57, False),
    ],
)
def test_columns_are_packed_where_tag_and_key_fit(num_columns, width, is_packed):
    columns = int_columns(num_columns)
    ranges = {c.name: (0, 2**width - 1) for c in columns}
    packed, alone = split_columns(columns, ranges)
    assert (packed == columns) == is_packed
    assert set(packed) | set(alone) == set(columns)


def test_both_ends_of_int64_in_one_column(spark):
    df = frame_of(spark, [(0, LOW), (0, HIGH), (0, HIGH), (0, -1), (0, None)], 3)
    rows = counted(count_rows(df, int_columns(3), observed_ranges(df, int_columns(3))))
    mine = {key[2]: n for key, n in rows.items() if key[1] == "c0"}
    assert mine == {LOW: 1, HIGH: 2, -1: 1, None: 1}


def test_hex_text_and_numbers_are_counted_side_by_side(spark):
    columns = (
        Column(name="h", role="sparse", dtype="string", key="hex32"),
        Column(name="s", role="sparse", dtype="string", key="string"),
        Column(name="n", role="sparse", dtype="int64", key="int64"),
    )
    rows = [(0, "ffffffff", "x", 5), (0, "00000000", "", -5), (0, None, None, None), (0, "ffffffff", "x ", 5)]
    df = spark.createDataFrame(rows, "day INT, h STRING, s STRING, n BIGINT")
    ranges = observed_ranges(df, columns)
    assert ranges == {"h": HEX32_RANGE, "n": (-5, 5)}
    found = {(column, key, value): n for (_, column, key, value), n in counted(count_rows(df, columns, ranges)).items()}
    assert found == {
        ("h", 2**32 - 1, None): 2,
        ("h", 0, None): 1,
        ("h", None, None): 1,
        ("n", 5, None): 2,
        ("n", -5, None): 1,
        ("n", None, None): 1,
        ("s", None, "x"): 1,
        ("s", None, "x "): 1,
        ("s", None, None): 2,
    }
