"""Hashed logistic regression on raw rows."""

import numpy as np
import pytest

from rec.core.errors import InputError
from rec.train.bootstrap import auc_interval
from rec.train.hashed_baseline import hashed_logistic_regression, read_hashed_rows

ROW = ["1", *["5"] * 13, *["68fd1e64"] * 26]


def write(path, *rows: list[str], end: str = "\n") -> None:
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode())


def test_lines_that_are_no_labelled_row_are_left_out_and_line_numbers_kept(tmp_path):
    path = tmp_path / "rows.tsv"
    header = ["label", *ROW[1:]]
    write(path, header, ROW, ROW[:-1], ["2", *ROW[1:]], ["1", "x", *ROW[2:]], [], ["0", *ROW[1:]])
    rows = read_hashed_rows(path)
    assert rows.line_B.tolist() == [2, 7]
    assert rows.label_B.tolist() == [1, 0]
    assert rows.lines(3).line_B.tolist() == [7]


def test_line_ends_and_a_byte_order_mark_change_no_bucket(tmp_path):
    write(tmp_path / "lf.tsv", ROW)
    write(tmp_path / "crlf.tsv", ROW, end="\r\n")
    (tmp_path / "bom.tsv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "lf.tsv").read_bytes())
    buckets = [read_hashed_rows(tmp_path / name).bucket_BF for name in ("lf.tsv", "crlf.tsv", "bom.tsv")]
    assert np.array_equal(buckets[0], buckets[1])
    assert np.array_equal(buckets[0], buckets[2])


def test_a_value_has_another_bucket_in_another_column_and_near_counts_share_one(tmp_path):
    path = tmp_path / "rows.tsv"
    write(path, *([ROW[0], count, *ROW[2:]] for count in ("1", "2", "", "1000", "1001", "4000", "-1")))
    buckets = read_hashed_rows(path).bucket_BF
    assert len(set(buckets[0, 13:].tolist())) == 26
    first = buckets[:, 0]
    assert first[3] == first[4]
    assert len(set(first.tolist())) == 6


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "empty.tsv").write_text("nothing\n")
    with pytest.raises(InputError, match="no line is a labelled row of 40 tab-separated fields"):
        read_hashed_rows(tmp_path / "empty.tsv")


def test_real_rows_reach_the_known_auc(criteo_dir):
    rows = read_hashed_rows(criteo_dir / "kaggle_labelled.tsv")
    test = rows.lines(10_001)
    result = hashed_logistic_regression(rows.lines(1, 8_000), rows.lines(8_001, 10_000), test)
    assert result.test_auc == pytest.approx(0.727, abs=0.005)
    interval = auc_interval(result.logit_B, test.label_B)
    assert interval.auc == pytest.approx(result.test_auc, abs=1e-12)
    assert 0.03 < interval.high - interval.low < 0.06
