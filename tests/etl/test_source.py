"""Text to rows: every physical line in one bin, with its number, by either scan."""

import gzip
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from line_reference import GOOD, NAMES, bin_of, good_line, split_lines, values_of

import rec
from rec.core.errors import InputError, QuarantineLimitError
from rec.etl.staging import staged

ALL = {"day": {"lines": [1.0]}, "max_quarantine_fraction": 1.0}


def bins_of(source) -> dict[tuple[int, int], str]:
    """Return the bin of each line by (file, line), quarantine and rows taken together."""
    found = {(q["file"], q["line"]): q["reason"] for q in source.quarantine.collect()}
    for row in source.frame.select("row_key").collect():
        place = (row["row_key"] >> 40, row["row_key"] & (2**40 - 1))
        assert place not in found
        found[place] = "row"
    return found


def expected_bins(contents: list[bytes], pad_right: bool = False) -> dict[tuple[int, int], str]:
    found = {}
    for file, content in enumerate(contents):
        for number, line in enumerate(split_lines(content), 1):
            bin_ = bin_of(line, pad_right)
            if bin_ != "header":
                found[file, number] = "row" if bin_ in ("accepted", "padded") else bin_
    return found


def write_files(folder, contents: list[bytes]) -> str:
    for k, content in enumerate(contents):
        (folder / f"f{k:03d}.tsv").write_bytes(content)
    return str(folder)


# What a field may hold that is nearly right.
ODD_FIELDS = [
    *(
        "",
        " ",
        "5 ",
        " 5",
        "+7",
        "-0",
        "007",
        "5.0",
        "5.00",
        "5.",
        ".5",
        "1e3",
        "5L",
        "0x1",
        "NULL",
        "\\N",
        "nan",
        "1d",
    ),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "-", "+", "٣"),
    *("deadbeef", "DEADBEEF", "dead-eef", "-1234567", "dead beef", "deadbee", "deadbeeff", "deadbee\r", '"eadbeef'),
    *("deadbeef\u2028", "5\u2028", "5\r", "5\x85", "0", "1", "2", "１", "\x01", "a,b", "'", "\ufeff0", "\x00"),
]
ODD_LINES = [
    *(
        "",
        " ",
        "\t" * 39,
        "\r",
        "\x0b\x0c",
        "\x01",
        "\u2028",
        "\xa0",
        "label",
        "\ufeff" + good_line(),
        good_line() + "\r",
    ),
    *("\t".join(GOOD[:n]) for n in (1, 2, 14, 15, 37, 39)),
    *("\t".join(GOOD[1:]), good_line() + "\t", good_line() + "\tx\ty", "\t".join(NAMES), "\t".join(NAMES).upper()),
]
LINES = st.one_of(
    st.just(good_line()),
    st.builds(lambda name, field: good_line(**{name: field}), st.sampled_from(NAMES), st.sampled_from(ODD_FIELDS)),
    st.builds(lambda n, field: "\t".join([*GOOD[:n], field]), st.integers(0, 40), st.sampled_from(ODD_FIELDS)),
    st.sampled_from(ODD_LINES),
    st.text(st.sampled_from("\t\t\t01ab -\r\x01,é"), max_size=60),
)


def to_file(lines: list[str], ends: list[str]) -> bytes:
    """Join lines with line ends; good lines first, so that the file is one of labelled lines."""
    lines = [good_line()] * 3 + lines
    return "".join(line + ends[k % len(ends)] for k, line in enumerate(lines)).encode()


FILES = st.lists(
    st.builds(to_file, st.lists(LINES, max_size=25), st.sampled_from([["\n"], ["\r\n"], ["\n", "\r\n"]])),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("pad_right", [False, True])
def test_every_odd_field_and_line_is_in_the_bin_of_the_reference(spark, tmp_path, pad_right):
    """One file per odd line, so that both scans meet each of them."""
    odd = [good_line(**{name: field}) for field in ODD_FIELDS for name in ("label", "I1", "C3", "C26")]
    blank = [line for line in ODD_LINES if not line.strip("".join(map(chr, range(33))))]
    contents = [to_file([line for line in odd + ODD_LINES if line not in blank and "\0" not in line], ["\n"])]
    contents += [to_file(odd + ODD_LINES, ["\r\n"]), b"\xef\xbb\xbf" + to_file(blank, ["\n"])]
    contents.append(to_file([], ["\n"]) + good_line(C1="\xff").encode("latin-1") + b"\n" + b"\xc3\x28\n")
    source = rec.read_criteo(spark, write_files(tmp_path, contents), pad_right=pad_right, **ALL)
    assert bins_of(source) == expected_bins(contents, pad_right)
    assert sum(row.lines for row in source.ledger.rows) == sum(len(split_lines(c)) for c in contents)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(contents=FILES, pad_right=st.booleans())
def test_any_lines_are_in_the_bins_of_the_reference(spark, tmp_path_factory, contents, pad_right):
    folder = tmp_path_factory.mktemp("lines")
    source = rec.read_criteo(spark, write_files(folder, contents), pad_right=pad_right, **ALL)
    assert bins_of(source) == expected_bins(contents, pad_right)


@pytest.fixture
def small_blocks(spark):
    """Scans cut into blocks of 1 KB."""
    settings = {"spark.sql.files.maxPartitionBytes": "1k", "spark.sql.files.openCostInBytes": "0"}
    kept = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in kept.items():
        spark.conf.set(key, value)


def numbered_file(start: int, count: int, blank: bool) -> bytes:
    """Lines whose I7 is their number in the file, of uneven length, some with carriage return, some bad."""
    lines = []
    for k in range(1, count + 1):
        end = "\r\n" if k % 7 == 0 else "\n"
        broken = "x" * (k % 97) if k % 11 == 0 else ""
        lines.append(broken + good_line(I7=str(start + k), C5="" if k % 3 else "0a0a0a0a") + end)
    if blank:
        lines[4] = " \n"
    return "".join(lines).encode()


@pytest.mark.parametrize("blank", [False, True], ids=["csv scan", "text scan"])
def test_line_numbers_hold_over_many_blocks(spark, tmp_path, small_blocks, blank):
    contents = [numbered_file(1000 * k, 60 + 40 * k, blank) for k in range(3)]
    contents.append(gzip.compress(numbered_file(3000, 90, blank)))
    source = rec.read_criteo(spark, write_files(tmp_path, contents), **{**ALL, "work_dir": tmp_path / "_work"})
    assert len(list((tmp_path / "_work/rows").rglob("*.parquet"))) > 20
    rows = source.frame.select("row_key", "I7").collect()
    assert all(row["I7"] == 1000 * (row["row_key"] >> 40) + (row["row_key"] & (2**40 - 1)) for row in rows)
    assert len(rows) == len({row["row_key"] for row in rows})
    assert [row.lines for row in source.ledger.rows] == [60, 100, 140, 90]


def test_parts_of_a_gzip_file_number_their_lines_on(spark, tmp_path, small_blocks, monkeypatch):
    from rec.etl import unpack

    content = numbered_file(0, 120, False)
    path = tmp_path / "day.tsv.gz"
    path.write_bytes(gzip.compress(content[:5000]) + gzip.compress(content[5000:]))
    kept = unpack.intake_text(str(path), str(tmp_path / "work"), None, 3000)
    assert len(kept.parts) > 5
    monkeypatch.setattr("rec.etl.text.measure_files", lambda *_: [kept])
    source = rec.read_criteo(spark, path, **{**ALL, "work_dir": tmp_path / "work"})
    rows = source.frame.select("row_key", "I7").collect()
    assert len(rows) == 110
    assert all(row["I7"] == row["row_key"] for row in rows)


def test_values_are_those_of_the_line(spark, tmp_path):
    lines = [good_line(I3="", I4="-5.0", C2="", I7="9223372036854775807"), "\t".join(GOOD[:20])]
    source = rec.read_criteo(spark, write_files(tmp_path, ["\r\n".join(lines).encode()]), pad_right=True, **ALL)
    rows = source.frame.orderBy("row_key").select(*NAMES).collect()
    assert [list(row) for row in rows] == [values_of(line.encode()) for line in lines]
    assert dict(source.frame.dtypes) == {
        "label": "int",
        **{name: "bigint" if name[0] == "I" else "string" for name in NAMES[1:]},
        "row_key": "bigint",
        "day": "int",
    }


def test_odd_file_names_keep_their_rows(spark, tmp_path):
    for k, name in enumerate(["a b.tsv", "c%20d.tsv", "e[1].tsv", "f{x,y}.tsv", "ü#?.tsv", "plain.tsv.gz"]):
        (tmp_path / name).write_text(good_line(I1=str(k)) + "\n")
    source = rec.read_criteo(spark, tmp_path, **{**ALL, "work_dir": tmp_path / "_work"})
    assert [row.accepted for row in source.ledger.rows] == [1] * 6
    assert sorted(row["I1"] for row in source.frame.select("I1").collect()) == list(range(6))


def test_a_file_of_blank_lines_names_no_column(spark, tmp_path):
    for name, text in {"0": "label,I1,C1\n1,5,0000000a\n", "1": "\n \n", "2": "I1,label,C1\n6,0,0000000b\n"}.items():
        (tmp_path / f"day_{name}.csv").write_text(text)
    source = rec.read_criteo(spark, tmp_path, day={"path": r"day_(\d)"}, max_quarantine_fraction=1)
    assert source.schema.names == ["label", "I1", "C1"]
    assert sorted(tuple(row)[:3] for row in source.frame.collect()) == [(0, 6, "0000000b"), (1, 5, "0000000a")]
    assert {(q["file"], q["line"]): q["reason"] for q in source.quarantine.collect()} == {
        (1, 1): "blank",
        (1, 2): "blank",
    }
    (tmp_path / "dated").mkdir()
    (tmp_path / "dated/0.csv").write_text("label,I1,C1,ts\n1,5,0000000a,2024-03-01\n")
    (tmp_path / "dated/1.csv").write_text("\n")
    source = rec.read_criteo(spark, tmp_path / "dated", day={"column": "ts"}, max_quarantine_fraction=1)
    assert [row["day"] for row in source.frame.collect()] == [20240301]
    assert [row["reason"] for row in source.quarantine.collect()] == ["blank"]


def test_cuts_count_lines_over_all_files(spark, tmp_path):
    contents = [(good_line() + "\n").encode() * 4, b"x\n" + (good_line() + "\n").encode() * 5]
    path = write_files(tmp_path, contents)
    source = rec.read_criteo(spark, path, day={"lines": [3, 0.7]}, max_quarantine_fraction=1)
    assert [(row.file, row.day, row.lines) for row in source.ledger.rows] == [
        (0, 0, 3),
        (0, 1, 1),
        (1, 1, 3),
        (1, 2, 3),
    ]
    assert source.quarantine.select("file_name", "line", "text", "reason", "day").collect() == [
        (f"{path}/f001.tsv", 1, "x", "short:1", 1)
    ]


def test_a_file_that_changes_before_it_is_parsed_is_an_error(spark, tmp_path, monkeypatch):
    path, work_dir = tmp_path / "day.tsv", tmp_path / "work"
    path.write_text((good_line() + "\n") * 5)

    def change_then_stage(*given):
        path.write_text((good_line(label="0") + "\n") * 5)
        return staged(*given)

    monkeypatch.setattr("rec.etl.text.staged", change_then_stage)
    with pytest.raises(InputError, match=r"day\.tsv: [\d,]+ bytes at intake, .* it changed meanwhile"):
        rec.read_criteo(spark, path, **{**ALL, "work_dir": work_dir})
    assert not list((work_dir / "rows").iterdir())


def test_a_file_that_changes_after_it_was_parsed_changes_nothing(spark, tmp_path):
    path = tmp_path / "day.tsv"
    path.write_text((good_line() + "\n") * 5)
    source = rec.read_criteo(spark, path, **ALL)
    path.write_text((good_line() + "\n") * 4)
    source.check()
    assert source.frame.count() == source.ledger.rows[0].accepted == 5


def test_lines_are_parsed_once_for_equal_files_and_settings(spark, tmp_path):
    path, given = tmp_path / "day.tsv", {**ALL, "work_dir": tmp_path / "work"}
    path.write_text((good_line() + "\n") * 5)
    rec.read_criteo(spark, path, **given)
    [first] = (tmp_path / "work/rows").iterdir()
    part = next(first.rglob("*.parquet")).stat().st_mtime_ns
    rec.read_criteo(spark, path, **given)
    assert [folder.name for folder in first.parent.iterdir()] == [first.name]
    assert next(first.rglob("*.parquet")).stat().st_mtime_ns == part
    rec.read_criteo(spark, path, **given, pad_right=True)
    os.utime(first, (0, 0))
    path.write_text((good_line() + "\n") * 6)
    source = rec.read_criteo(spark, path, **given)
    assert source.frame.count() == 6
    assert len(list(first.parent.iterdir())) == 2
    assert not first.exists()


def test_more_quarantined_lines_than_allowed_stop_a_run(spark, tmp_path):
    path = tmp_path / "day.tsv"
    path.write_text((good_line() + "\n") * 8 + good_line(I2="x") + "\n" + "y\n")
    source = rec.read_criteo(spark, path, day={"lines": [1.0]}, max_quarantine_fraction=0.1)
    with pytest.raises(QuarantineLimitError) as error:
        source.check()
    message = str(error.value)
    assert message.startswith(
        f"{path}:9: int:I2, the first of 2 quarantined lines (int:I2 1, short:1 1) of 10, 20.000%"
    )
    assert "the limit is 10.000%" in message
    assert "max_quarantine_fraction" in message
    replace(source, max_quarantine_fraction=0.2).check()


def test_a_source_without_a_row_is_refused_at_any_limit(spark, tmp_path):
    path = tmp_path / "day.csv"
    path.write_text("1,2,3\n" * 5)
    with pytest.raises(QuarantineLimitError, match=r"5 quarantined lines \(short:1 5\) of 5, .*no row is left"):
        rec.read_criteo(spark, path, **ALL).check()
