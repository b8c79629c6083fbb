"""Files as they are met in practice: expected bins and values stand beside the inputs."""

import json

import pytest
from line_reference import NAMES

import rec
from rec.core.errors import DayError, SchemaDriftError
from rec.core.tables import Days

ALL = {"day": {"lines": [1.0]}, "max_quarantine_fraction": 1.0}


@pytest.fixture
def case(cases, request):
    """The folder of a case and its expected values."""
    folder = cases / request.param
    return folder, json.loads((folder / "expected.json").read_text())


def lines_of(source) -> list[int]:
    return sorted(row["row_key"] & (2**40 - 1) for row in source.frame.select("row_key").collect())


def reasons_of(source) -> dict[str, str]:
    return {str(row["line"]): row["reason"] for row in source.quarantine.collect()}


def column(source, name: str) -> list:
    return [row[name] for row in source.frame.orderBy("row_key").select(name).collect()]


@pytest.mark.parametrize("case", ["01_short_rows"], indirect=True)
@pytest.mark.parametrize("mode", ["strict", "pad_right"])
def test_short_and_long_rows(spark, case, mode):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "rows.tsv", pad_right=mode == "pad_right", **ALL)
    assert lines_of(source) == expected[mode]["accepted_lines"]
    assert reasons_of(source) == expected[mode]["quarantined"]
    (row,) = source.ledger.rows
    assert row.padded == len(expected[mode].get("padded_lines", []))
    assert row.lines == expected["physical_lines"]
    if mode == "pad_right":
        padded = source.frame.where("row_key = 3").select("C23", "C24", "C25", "C26").first()
        assert padded["C23"] is not None
        assert [value or "" for value in padded[1:]] == expected["line3_padded_last3"]


@pytest.mark.parametrize("case", ["02_crlf"], indirect=True)
def test_carriage_returns_change_nothing(spark, case):
    folder, expected = case
    crlf, lf = (rec.read_criteo(spark, folder / f"rows_{kind}.tsv", **ALL) for kind in ("crlf", "lf"))
    assert column(crlf, "C26") == expected["C26"]
    assert crlf.frame.orderBy("row_key").collect() == lf.frame.orderBy("row_key").collect()
    assert crlf.frame.count() == expected["rows"]


@pytest.mark.parametrize("case", ["04_stray_quote", "14_nonhex_categorical", "09_int_beyond_int32"], indirect=True)
def test_a_line_with_a_value_that_is_none_is_quarantined_alone(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "rows.tsv", **ALL)
    assert lines_of(source) == expected["accepted_lines"]
    assert reasons_of(source) == expected["quarantined"]
    if "I7" in expected:
        assert column(source, "I7") == expected["I7"]


@pytest.mark.parametrize("case", ["05_bom"], indirect=True)
def test_a_byte_order_mark_is_dropped(spark, case):
    folder, expected = case
    assert column(rec.read_criteo(spark, folder / "no_header.tsv", **ALL), "label") == expected["no_header_labels"]
    source = rec.read_criteo(spark, folder / "with_header.csv", **ALL)
    assert source.files[0].layout == "header"
    assert source.frame.count() == expected["with_header_rows"]
    by_day = rec.read_criteo(spark, folder / "with_header.csv", day={"column": expected["with_header_first_column"]})
    assert column(by_day, "day") == [19700101, 19700101]


@pytest.mark.parametrize("case", ["06_repeated_header"], indirect=True)
def test_header_lines_in_the_middle_are_headers(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "merged.csv", **ALL)
    (row,) = source.ledger.rows
    assert (row.header, row.lines) == (len(expected["header_lines"]), expected["physical_lines"])
    assert column(source, "label") == expected["labels"]
    assert set(lines_of(source)) == set(range(1, 9)) - set(expected["header_lines"])


@pytest.mark.parametrize("case", ["08_mixed_layouts"], indirect=True)
def test_the_layout_is_decided_by_file(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "*.?sv", **ALL)
    rows = {file.path.rsplit("/", 1)[-1]: row for file, row in zip(source.files, source.ledger.rows)}
    for name, file in expected["files"].items():
        assert rows[name].accepted == file["rows"]
        assert (rows[name].unlabelled == 0) == file["labelled"]
    assert sum(row.rows - row.unlabelled for row in rows.values()) == expected["labelled_total"]
    unlabelled = source.frame.where("label IS NULL").orderBy("row_key").select("I1").collect()
    assert [row["I1"] for row in unlabelled] == expected["files"]["kaggle_test.tsv"]["I1"]


@pytest.mark.parametrize("case", ["08_mixed_layouts"], indirect=True)
def test_a_file_of_zero_labels_is_warned_of(spark, case, tmp_path):
    folder, _ = case
    lines = (folder / "kaggle_train.tsv").read_text().splitlines()
    (tmp_path / "dummy.tsv").write_text("".join("0" + line[1:] + "\n" for line in lines))
    (tmp_path / "real.tsv").write_text((folder / "kaggle_train.tsv").read_text())
    source = rec.read_criteo(spark, tmp_path, **ALL)
    assert len(source.ledger.warnings) == 1
    assert f"{tmp_path}/dummy.tsv: all 3 labels are 0" in source.ledger.warnings[0]


@pytest.mark.parametrize("case", ["10_negative_ints_log"], indirect=True)
def test_negative_integers_are_data(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "rows.tsv", day={"lines": [1.0]})
    source.check()
    assert column(source, "I2") == expected["I2_raw"]


@pytest.mark.parametrize("case", ["12_hex_uint32_sign", "13_hex_looks_numeric"], indirect=True)
def test_hashes_stay_as_they_are_written(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "rows.tsv", day={"lines": [1.0]})
    name = "C1" if "C1" in expected else "C2"
    assert column(source, name) == expected[name]
    keys = source.frame.orderBy("row_key").selectExpr(f"CAST(CONV({name}, 16, 10) AS BIGINT) AS key").collect()
    assert [row["key"] for row in keys] == expected.get("unsigned", [int(v, 16) for v in expected[name]])


@pytest.mark.parametrize("case", ["34_schema_drift"], indirect=True)
def test_columns_are_matched_by_name(spark, case):
    folder, expected = case
    source = rec.read_criteo(spark, folder / "*.csv", day={"path": r"day(\d+)"}, max_quarantine_fraction=1)
    rows = source.frame.orderBy("row_key").select("label", "I1", "C1", "C27").collect()
    assert [row.asDict() for row in rows] == expected["rows"]
    rejected = source.quarantine.collect()
    assert [(r["file_name"].rsplit("/", 1)[-1], r["line"], r["reason"], r["day"]) for r in rejected] == [
        (r["file"], r["line"], f"int:{r['column']}", 3) for r in expected["rejected"]
    ]
    assert {c.name: c.first_day for c in source.schema.columns} == {"label": None, "I1": None, "C1": None, "C27": 2}


@pytest.mark.parametrize("case", ["34_schema_drift"], indirect=True)
def test_a_column_that_is_gone_is_refused(spark, case, tmp_path):
    folder, _ = case
    for day, name in ((9, "day2.csv"), (10, "day1.csv")):
        (tmp_path / f"day_{day}.csv").write_text((folder / name).read_text())
    with pytest.raises(SchemaDriftError, match=r"day_10\.csv: column 'C27' is gone, .*day_9\.csv has it"):
        rec.read_criteo(spark, tmp_path, day={"path": r"day_(\d+)"})


@pytest.mark.parametrize("case", ["37_timezone_partition"], indirect=True)
@pytest.mark.parametrize("kind", ["seconds", "iso", "offset"])
def test_a_day_is_the_date_in_utc(spark, case, tmp_path, kind):
    from datetime import UTC, datetime, timedelta, timezone

    folder, expected = case
    path = folder / "events.csv"
    if kind != "seconds":
        zone = UTC if kind == "iso" else timezone(timedelta(hours=-5))
        times = [datetime.fromtimestamp(ts, zone) for ts in expected["ts"]]
        texts = [f"{t:%Y-%m-%dT%H:%M:%S}" if kind == "iso" else t.isoformat(" ") for t in times]
        path = tmp_path / "events.csv"
        path.write_text("id,epoch_s\n" + "".join(f"{k},{text}\n" for k, text in enumerate(texts)))
    source = rec.read_criteo(spark, path, day={"column": "epoch_s"})
    assert column(source, "day") == [int(day.replace("-", "")) for day in expected["utc_day"]]


def test_an_instant_that_is_none_is_quarantined(spark, tmp_path):
    texts = ["0", "", "noon", "12:30", "1709254800000", "2024-02-30", "-1", "2024-02-29 23:59:59"]
    (tmp_path / "e.csv").write_text("ts,label\n" + "".join(f"{text},1\n" for text in texts))
    source = rec.read_criteo(spark, tmp_path, day={"column": "ts"}, max_quarantine_fraction=1)
    assert column(source, "day") == [19700101, 19691231, 20240229]
    assert reasons_of(source) == dict.fromkeys(["3", "4", "5", "6", "7"], "day:ts")


def test_a_source_that_cannot_tell_the_day_is_refused(spark, cases):
    with pytest.raises(DayError, match=r"rows\.tsv: no way to tell the day, no header names day\.column 'ts'"):
        rec.read_criteo(spark, cases / "01_short_rows/rows.tsv", day={"column": "ts"})


def test_a_day_without_rows_is_refused_with_those_there_are(spark, cases):
    source = rec.read_criteo(
        spark, cases / "34_schema_drift/*.csv", day={"path": r"day(\d)"}, max_quarantine_fraction=1
    )
    source.check_days(Days(train=(1, 2), test=(3,)))
    with pytest.raises(DayError, match=r"days\.test: day 4 holds no row; the source has days 1, 2, 3"):
        source.check_days(Days(train=(1, 2), test=(4,)))


@pytest.mark.parametrize(
    ("name", "num_lines", "layout"),
    [
        ("kaggle_labelled", 12569, "labelled"),
        ("kaggle_unlabelled", 1999, "unlabelled"),
        ("terabyte_labelled", 1000, "labelled"),
    ],
)
def test_real_rows_are_all_accepted(spark, criteo_dir, name, num_lines, layout):
    source = rec.read_criteo(spark, criteo_dir / f"{name}.tsv", day={"lines": [0.8, 0.9]})
    source.check()
    assert [file.layout for file in source.files] == [layout]
    assert sum(row.accepted for row in source.ledger.rows) == num_lines
    assert [row.lines for row in source.ledger.rows] == [
        int(0.8 * num_lines),
        int(0.9 * num_lines) - int(0.8 * num_lines),
        num_lines - int(0.9 * num_lines),
    ]
    last = source.frame.where(f"row_key = {num_lines}").select(*NAMES).first()
    fields = (criteo_dir / f"{name}.tsv").read_text().splitlines()[-1].split("\t")
    fields = fields if layout == "labelled" else ["", *fields]
    assert ["" if value is None else str(value) for value in last] == fields
