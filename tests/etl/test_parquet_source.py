"""Raw Parquet: columns by role, rows by file and position."""

import json
import math
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rec
from rec.core.errors import ConfigError, InputError, SchemaDriftError
from rec.etl.config import SourceConfig
from rec.etl.source import read_source

DAY = {"lines": [1.0]}


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_an_empty_part_changes_nothing(spark, cases):
    expected = json.loads((cases / "27_empty_parquet_part/expected.json").read_text())
    columns = {"label": "label", "sparse": {"id": "int64"}}
    source = rec.read_parquet(spark, cases / "27_empty_parquet_part/*.parquet", day=DAY, columns=columns)
    source.check()
    assert sorted(row["id"] for row in source.frame.collect()) == expected["ids"]
    assert [row.lines for row in source.ledger.rows] == expected["part_rows"]
    assert [c.dtype for c in source.schema.columns] == ["int32", "int64"]


def test_rows_are_numbered_within_their_file_over_many_blocks(spark, tmp_path):
    for k in range(2):
        table = pa.table({"x": pa.array(range(1, 501), pa.int32()), "s": [f"{i:08x}" for i in range(500)]})
        pq.write_table(table, tmp_path / f"p{k}.parquet", row_group_size=37)
    kept = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1k")
    try:
        source = rec.read_parquet(
            spark, tmp_path, day=DAY, columns={"dense": ["x"], "sparse": {"s": "hex32"}}, work_dir=tmp_path / "_w"
        )
        rows = source.frame.collect()
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", kept)
    assert len({row["row_key"] for row in rows}) == 1000
    assert all(row["x"] == row["row_key"] & (2**40 - 1) for row in rows)


def test_a_row_with_a_value_of_another_kind_is_quarantined(spark, tmp_path):
    path = write(
        tmp_path / "a.parquet",
        click=pa.array([1, 0, None, 2, 1, 1, 1, 1], pa.int64()),
        price=[1.5, None, 0.0, 1.0, math.nan, math.inf, 2.0, 3.0],
        h=["0a0a0a0a", "", None, "0a0a0a0a", "0a0a0a0a", "0a0a0a0a", "NULL", "0a0a0a0a\n"],
        city=["Köln", "", None, "x", "x", "x", "x", "x"],
    )
    columns = {"label": "click", "dense": ["price"], "sparse": {"h": "hex32", "city": "string"}}
    source = rec.read_parquet(spark, path, day=DAY, columns=columns, max_quarantine_fraction=1)
    rows = source.frame.orderBy("row_key").drop("row_key", "day").collect()
    assert [tuple(row) for row in rows] == [
        (1, 1.5, "0a0a0a0a", "Köln"),
        (0, None, None, None),
        (None, 0.0, None, None),
    ]
    found = {row["line"]: row["reason"] for row in source.quarantine.collect()}
    assert found == {4: "label", 5: "type:price", 6: "type:price", 7: "cat:h", 8: "cat:h"}
    assert source.quarantine.where("line = 7").first()["text"] == "1\t2.0\tNULL\tx"
    assert [(r.accepted, r.unlabelled, r.lines) for r in source.ledger.rows] == [(3, 1, 8)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1709251199, 1709251200, None], pa.int64()),
        ([datetime(2024, 2, 29, 23, 59, 59), datetime(2024, 3, 1), None], pa.timestamp("us")),
        (
            [datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), None],
            pa.timestamp("ms", "Asia/Tokyo"),
        ),
        ([date(2024, 2, 29), date(2024, 3, 1), None], pa.date32()),
        (["2024-02-29T23:59:59", "2024-03-01", "soon"], pa.string()),
    ],
)
def test_a_day_column_is_an_instant_of_any_kind(spark, tmp_path, values, kind):
    path = write(tmp_path / "a.parquet", x=[1, 2, 3], ts=pa.array(values, kind))
    source = rec.read_parquet(spark, path, day={"column": "ts"}, columns={"dense": ["x"]}, max_quarantine_fraction=1)
    assert [row["day"] for row in source.frame.orderBy("row_key").collect()] == [20240229, 20240301]
    assert [row["reason"] for row in source.quarantine.collect()] == ["day:ts"]


def test_a_column_may_tell_the_day_and_be_a_feature(spark, tmp_path):
    path = write(tmp_path / "a.parquet", ts=[1709251199, 1709251200], s=["2024-03-01", None])
    given = {"dense": ["ts"], "sparse": {"s": "string"}}
    source = rec.read_parquet(spark, path, day={"column": "ts"}, columns=given)
    rows = source.frame.orderBy("row_key").select("ts", "day").collect()
    assert [tuple(row) for row in rows] == [(1709251199, 20240229), (1709251200, 20240301)]
    given = {"sparse": {"s": "string"}}
    source = rec.read_parquet(spark, path, day={"column": "s"}, columns=given, max_quarantine_fraction=1)
    assert [row["s"] for row in source.frame.collect()] == ["2024-03-01"]
    path = write(tmp_path / "b.parquet", price=[1.5])
    with pytest.raises(SchemaDriftError, match="'price' is float, read as day, which takes integer or text or date"):
        rec.read_parquet(spark, path, day={"column": "price"}, columns={"dense": ["price"]})


def test_widths_of_a_type_may_differ_and_columns_may_be_added(spark, tmp_path):
    write(tmp_path / "day_9.parquet", x=pa.array([1], pa.int32()), f=pa.array([0.5], pa.float32()))
    write(tmp_path / "day_10.parquet", f=[0.25], new=["a"], x=pa.array([2**40], pa.int64()))
    columns = {"dense": ["x", "f"], "sparse": {"new": "string"}}
    source = rec.read_parquet(spark, tmp_path, day={"path": r"day_(\d+)"}, columns=columns, work_dir=tmp_path / "_w")
    rows = source.frame.orderBy("day").drop("row_key").collect()
    assert [tuple(row) for row in rows] == [(None, 1, 0.5, None, 9), (None, 2**40, 0.25, "a", 10)]
    assert source.schema["new"].first_day == 10


@pytest.mark.parametrize(
    ("second", "columns", "message"),
    [
        ({"y": [1]}, {"dense": ["x"]}, r"b\.parquet: column 'x' is gone, .*a\.parquet has it"),
        ({"x": ["1"]}, {"dense": ["x"]}, r"b\.parquet: column 'x' is text, integer in .*a\.parquet"),
        ({"x": [1]}, {"dense": ["z"]}, "no file has column 'z', read as dense"),
        ({"x": [1]}, {"sparse": {"x": "hex32"}}, "column 'x' is integer, read as hex32, which takes text"),
    ],
)
def test_a_column_that_is_gone_or_retyped_is_refused(spark, tmp_path, second, columns, message):
    write(tmp_path / "a.parquet", x=[1])
    write(tmp_path / "b.parquet", **second)
    with pytest.raises(SchemaDriftError, match=message):
        rec.read_parquet(spark, tmp_path, day=DAY, columns=columns)


def test_a_file_that_is_cut_off_is_refused_by_name(spark, tmp_path):
    path = write(tmp_path / "a.parquet", x=[1])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"a\.parquet: not a whole Parquet file"):
        rec.read_parquet(spark, path, day=DAY, columns={"dense": ["x"]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layout": "parquet"}, "layout parquet needs columns"),
        ({"columns": {"dense": ["x"]}}, "columns given for layout criteo"),
        ({"layout": "parquet", "columns": {"dense": ["x"]}, "pad_right": True}, "pad_right is for lines of text"),
        ({"layout": "parquet", "columns": {"dense": ["x"], "sparse": {"x": "int64"}}}, "'x' is named 2 times"),
        ({"layout": "parquet", "columns": {"dense": ["day"]}}, "a feature cannot be called 'day'"),
        (
            {"layout": "parquet", "columns": {"dense": ["x"], "sparse": {"X": "int64"}}},
            "'x' is named 2 times, upper and",
        ),
        *(
            ({"layout": "parquet", "columns": {"dense": [name]}}, f"a feature cannot be called '{name}'")
            for name in ("Day", "LABEL", "row_key", "state_id", "golden_id", "_file", "a`b")
        ),
        ({"layout": "parquet", "columns": {"dense": ["p", "raw_P"]}}, "values of 'p' as 'raw_p', which is a feature"),
        (
            {"layout": "parquet", "columns": {"label": "click", "dense": ["x"], "sparse": {"click": "int64"}}},
            "'click' is the label and a feature",
        ),
        ({"layout": "parquet", "columns": {"label": "x"}}, "neither dense nor sparse"),
        ({"max_quarantine": 1}, "unknown key 'max_quarantine'; did you mean 'max_quarantine_fraction'"),
        ({"max_quarantine_fraction": 2}, "max_quarantine_fraction = 2"),
    ],
)
def test_a_source_section_that_does_not_hold_is_refused(given, message):
    from rec.core.config import parse_config

    with pytest.raises(ConfigError, match=message):
        parse_config(SourceConfig, {"path": "x", "day": DAY, **given}, "source")


def test_a_section_reads_what_the_function_reads(spark, cases):
    config = SourceConfig(path=str(cases / "01_short_rows/rows.tsv"), day=DAY, pad_right=True)
    padded = rec.read_criteo(spark, config.path, day=DAY, pad_right=True)
    assert read_source(spark, config).ledger.rows == padded.ledger.rows


def test_a_session_in_another_zone_is_refused(spark, cases):
    spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    try:
        with pytest.raises(ConfigError, match=r"spark\.sql\.session\.timeZone is Asia/Shanghai; set it to UTC"):
            rec.read_criteo(spark, cases / "01_short_rows/rows.tsv", day=DAY)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
