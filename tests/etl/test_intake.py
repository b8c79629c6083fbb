"""Intake: what one pass over a file's bytes tells, and which files it refuses."""

import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_reference import GOOD, good_line, split_lines

from rec.core.errors import InputError
from rec.core.manifest import sha256_file
from rec.etl import unpack
from rec.etl.intake import find_files
from rec.etl.layout import decide_layout, parse_header
from rec.etl.lines import BOM, SEPARATORS, measure
from rec.etl.unpack import intake_text

GOOD_LINE = good_line().encode()


def cut(content: bytes, sizes: list[int]) -> list[bytes]:
    """Cut a content into blocks of the sizes, over and over."""
    blocks, start, turn = [], 0, 0
    while start < len(content):
        size = sizes[turn % len(sizes)] if sizes else len(content)
        blocks.append(content[start : start + size])
        start, turn = start + size, turn + 1
    return blocks


TEXTS = st.lists(st.sampled_from([b"\n", b"\r\n", b" ", b"\t", b"\x01", b"ab", BOM, b"\xff", b"\0"]), max_size=40)


@given(TEXTS.map(b"".join), st.lists(st.integers(1, 7), max_size=3))
def test_counts_are_those_of_the_whole_text_wherever_blocks_end(content, sizes):
    counter = measure("f", cut(content, sizes), None)
    lines = split_lines(content)
    assert counter.num_lines == len(lines)
    assert counter.num_trimmed == sum(not line.strip(bytes(range(33))) for line in lines)
    assert counter.bom == content.startswith(BOM)
    clean = b"\0" not in content and b"\xff" not in content
    assert set(counter.separators) == ({b for b in SEPARATORS if b not in content} if clean else set())
    assert counter.utf8 == (b"\xff" not in content)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([GOOD_LINE], "labelled"),
        (["\t".join(GOOD[1:]).encode()], "unlabelled"),
        ([b"short"] * 3 + [GOOD_LINE], "labelled"),
        (["\t".join(GOOD[1:]).encode()] + [GOOD_LINE] * 2, "labelled"),
        ([b"id,LABEL,i1,c1", b"7,1,2,0000000a"], "header"),
        ([b",label,I1", b"0,1,2"], "header"),
        ([b"Label\tC1\tI1", b"1\t0000000a\t2"], "header"),
        ([b"label,I1,C1", GOOD_LINE, GOOD_LINE], "labelled"),
        ([], "empty"),
    ],
)
def test_the_most_frequent_layout_of_the_first_lines_is_the_files(lines, kind):
    layout, warning = decide_layout(lines)
    assert (layout.kind, warning) == (kind, None)


def test_a_file_whose_lines_fit_no_layout_is_read_as_labelled_with_a_warning():
    layout, warning = decide_layout([b"a b c", b"d"])
    assert layout.kind == "labelled"
    assert "none of the first 2 lines fits" in warning


@pytest.mark.parametrize("line", [b"1,2,3", b"label,5,0000000a", b"label", b"a,b", b"label,Label", GOOD_LINE])
def test_a_line_with_data_or_without_a_column_that_is_read_is_no_header(line):
    assert parse_header(line) is None


def test_a_day_column_makes_a_header():
    assert parse_header(b"id,epoch_s", "EPOCH_S").names == ("id", "epoch_s")


@pytest.mark.parametrize("part_bytes", [1, 100, 700, 1 << 20])
def test_members_are_unpacked_into_parts_that_end_where_lines_do(tmp_path, part_bytes):
    generator = random.Random(part_bytes)
    lines = [bytes(generator.choices(b"abc\t", k=generator.randrange(300))) for _ in range(200)]
    lines[50] = BOM + b"x"
    text = b"\n".join(lines)
    path = tmp_path / "day.bin"
    path.write_bytes(gzip.compress(text[:9000]) + gzip.compress(b"") + gzip.compress(text[9000:]))
    intake = intake_text(str(path), str(tmp_path / "work"), None, part_bytes)
    assert intake.num_lines == 200
    assert intake.sha256 == intake_text(str(path), str(tmp_path / "other"), None).sha256
    found, number = b"", 1
    for index, part in enumerate(intake.parts):
        content = Path(part.path).read_bytes()
        # A reader drops the mark with which every part but the first begins.
        content = content.removeprefix(BOM) if index else content
        assert part.first_line == number
        assert len(content) <= part_bytes or content.count(b"\n") <= 1
        number += content.count(b"\n")
        found += content
    assert found == text


def test_parts_are_reused_until_one_is_not_whole(tmp_path):
    path, work = tmp_path / "day.gz", tmp_path / "work"
    path.write_bytes(gzip.compress((good_line() + "\n").encode() * 9))
    first = intake_text(str(path), str(work), None)
    part = Path(first.parts[0].path)
    written, content = part.stat(), part.read_bytes()
    assert intake_text(str(path), str(work), None) == first
    assert part.stat().st_ino == written.st_ino
    part.write_bytes(content[:-1])
    assert intake_text(str(path), str(work), None) == first
    assert part.read_bytes() == content


GZ = gzip.compress(b"some text\n" * 1000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GZ[:-1], "ends inside gzip member 1"),
        (GZ[: len(GZ) // 2], "ends inside gzip member 1"),
        (GZ + GZ[:5], "ends inside gzip member 2"),
        (GZ + b"x", "follows gzip member 1"),
        (GZ + b"\0\0\0\0", "follows gzip member 1"),
        (GZ[:-8] + bytes([GZ[-8] ^ 1]) + GZ[-7:], "member 1 is damaged"),
        (b"BZh91AY", "holds bzip2"),
        (b"PAR1....", "holds Parquet"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_by_name_and_leaves_no_part(tmp_path, content, reason):
    path = tmp_path / "day_3.tsv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"day_3.tsv: .*{reason}"):
        intake_text(str(path), str(tmp_path / "work"), None)
    assert not [p for p in (tmp_path / "work").rglob("*") if p.is_file()]


def test_a_disk_without_room_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    path = tmp_path / "day.gz"
    path.write_bytes(GZ)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(InputError, match=rf"takes about {3 * len(GZ):,} bytes, .* has 10 free; .*work_dir"):
        intake_text(str(path), str(tmp_path), None)


def test_a_second_header_of_other_columns_is_refused_with_its_line(tmp_path):
    path = tmp_path / "merged.csv"
    path.write_bytes(b"label,I1,C1\n1,2,0000000a\nLabel,I1,C1\nI1,label,C1\n2,1,0000000a\n")
    with pytest.raises(InputError, match=r"merged\.csv: line 4 is a header of other columns"):
        intake_text(str(path), str(tmp_path), None)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (BOM + b"ID,label,I1,C1", "a byte order mark before it"),
        (BOM + b"id,Label,i1,C1 ", "a byte order mark before it"),
        (b"ID,label,I1,C1 ", "other white space around its names"),
        (b"ID, label, I1, C1", "other white space around its names"),
    ],
)
def test_the_first_header_again_but_for_what_is_around_its_names_is_refused_for_that(tmp_path, line, what):
    path = tmp_path / "merged.csv"
    path.write_bytes(b"ID,label,I1,C1\n7,1,2,0000000a\n" + line + b"\n8,2,1,0000000a\n")
    with pytest.raises(InputError, match=rf"merged\.csv: line 3 is the first header again, with {what}; "):
        intake_text(str(path), str(tmp_path), None)


@pytest.mark.parametrize("name", ["ÄGE", "äge", "größe", "日本"])
def test_a_header_of_any_letters_is_one_in_either_case(tmp_path, name):
    path = tmp_path / "day.csv"
    lines = [f"label,I1,C1,{name}", "1,2,0000000a,x", f"LABEL,i1,C1,{name.lower()}", "0,2,0000000a,x"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    intake = intake_text(str(path), str(tmp_path), None)
    assert (intake.num_lines, intake.layout.kind) == (4, "header")
    assert intake.layout.names == ("label", "I1", "C1", name)


def test_a_header_in_another_encoding_is_refused_for_that(tmp_path):
    path = tmp_path / "day.csv"
    path.write_bytes("label,I1,C1,größe\n1,2,0000000a,x\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"day\.csv: its header is not UTF-8 .*; write the file in UTF-8"):
        intake_text(str(path), str(tmp_path), None)


@pytest.mark.parametrize("restored", [False, True])
def test_a_gzip_file_that_changes_between_two_passes_leaves_no_parts(tmp_path, monkeypatch, restored):
    path, work = tmp_path / "day.gz", tmp_path / "work"
    first, second = (gzip.compress((good_line() + "\n").encode() * n) for n in (2, 5))
    path.write_bytes(first)

    def changed(name):
        digest = sha256_file(name)
        path.write_bytes(second)
        return digest

    monkeypatch.setattr(unpack, "sha256_file", changed)
    with pytest.raises(InputError, match=r"day\.gz: changed while it was read; read the source again"):
        intake_text(str(path), str(work), None)
    monkeypatch.undo()
    assert not list((work / "parts").iterdir())
    path.write_bytes(first if restored else second)
    assert intake_text(str(path), str(work), None).num_lines == (2 if restored else 5)


def test_parts_that_nobody_reads_for_a_week_are_removed(tmp_path):
    work, kept = tmp_path / "work", {}
    for name in ("read", "left", "new"):
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress((good_line() + f"\n{name}\n").encode()))
        if name == "new":
            for folder in kept.values():
                os.utime(folder, (0, 0))
            intake_text(str(tmp_path / "read.gz"), str(work), None)
        [part] = intake_text(str(path), str(work), None).parts
        kept[name] = Path(part.path).parent
    assert {name for name, folder in kept.items() if folder.exists()} == {"read", "new"}


def test_a_link_to_nothing_is_refused_by_name(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.tsv").write_text("x")
    for link in (tmp_path / "b.tsv", tmp_path / "sub/c.tsv"):
        link.symlink_to(tmp_path / "gone.tsv")
        for source in (tmp_path, tmp_path / "*", link):
            with pytest.raises(InputError, match=rf"{link}: a link to {tmp_path}/gone.tsv, which is not there"):
                find_files(source)
        link.unlink()
    (tmp_path / "_b.tsv").symlink_to(tmp_path / "gone.tsv")
    assert find_files(tmp_path) == [str(tmp_path / "a.tsv")]


def test_what_is_no_file_is_refused_by_name(tmp_path):
    (tmp_path / "a.tsv").write_text("x")
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(InputError, match=r"pipe\.tsv: neither a file nor a folder"):
        find_files(tmp_path)


def test_a_linked_folder_is_read_unless_its_files_are_read_by_their_own_path(tmp_path):
    raw = tmp_path / "raw"
    for folder in (raw / "day_1", raw / "_store", tmp_path / "elsewhere"):
        folder.mkdir(parents=True)
        (folder / "a.tsv").write_text("x")
    (raw / "Day_latest").symlink_to(raw / "day_1")
    (raw / "day_2").symlink_to(raw / "_store")
    (raw / "day_3").symlink_to(tmp_path / "elsewhere")
    assert find_files(raw) == [f"{raw}/day_{k}/a.tsv" for k in (1, 2, 3)]
    (raw / "day_3/up").symlink_to(tmp_path)
    (raw / "day_1/up").symlink_to(raw)
    with pytest.raises(InputError, match=r"day_1/up: a link to .*raw, which it lies in"):
        find_files(raw)


def test_files_come_in_path_order_without_hidden_ones(tmp_path):
    for name in ("b.tsv", "a.tsv", "_SUCCESS", ".a.crc", "sub/c.tsv", "_tmp/d.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    below = [str(tmp_path / name) for name in ("a.tsv", "b.tsv", "sub/c.tsv")]
    assert find_files(tmp_path) == below
    assert find_files(tmp_path / "*.tsv") == below[:2]
    assert find_files(f"file://{tmp_path}/a.tsv") == below[:1]


def test_a_pattern_matches_nothing_in_a_folder_of_a_hidden_name(tmp_path):
    top = tmp_path / "_raw"
    for name in ("a/day_0.tsv", "_temporary/0/day_0.tsv", "a/.spool/day_1.tsv", "day_2.tsv"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")
    shown = [str(top / "a/day_0.tsv"), str(top / "day_2.tsv")]
    assert find_files(top / "**/*.tsv") == find_files(top / "**/day_?.tsv") == find_files(top) == shown
    assert find_files(top / "*") == shown
    with pytest.raises(InputError, match="holds no data file"):
        find_files(top / "*/0/*.tsv")


@pytest.mark.parametrize("pattern", ["raw/delta/*.parquet", "raw/*/*.parquet", "raw/**/*.parquet", "ra?/delta"])
def test_a_pattern_into_a_delta_table_is_refused(tmp_path, pattern):
    (tmp_path / "raw/delta/_delta_log").mkdir(parents=True)
    for name in ("part-0.parquet", "_delta_log/0.checkpoint.parquet"):
        (tmp_path / "raw/delta" / name).write_text("x")
    with pytest.raises(InputError, match=r"raw/delta: a Delta table, whose removed files would be read too"):
        find_files(tmp_path / pattern)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gone.tsv", "no such file"),
        ("day_*", "no such file"),
        ("empty", "holds no data file"),
        ("delta", "a Delta table"),
    ],
)
def test_a_source_without_files_is_refused_by_path(tmp_path, path, reason):
    (tmp_path / "empty").mkdir()
    (tmp_path / "delta/_delta_log").mkdir(parents=True)
    with pytest.raises(InputError, match=f"{path.replace('*', '.')}: .*{reason}"):
        find_files(tmp_path / path)
