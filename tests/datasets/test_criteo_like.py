"""Written folders: the ledger against an exact reader, the same bytes on every CPU, one chunk in memory."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from rec.core.config import parse_config
from rec.core.errors import ConfigError, InputError
from rec.datasets.criteo_like import CriteoLikeConfig, CriteoLikeDataset, write_criteo_like
from rec.datasets.faults import FAULTS

FIRST_ROWS_SHA256 = "1c3764cd56285cda535cc99fd300742b9e22c23a0831fa443659190decfb4802"
SMALL = CriteoLikeConfig(num_days=3, rows_per_day=(20_000, 5_000, 3_000), seed=5, malformed_per_day=22)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> CriteoLikeDataset:
    return write_criteo_like(tmp_path_factory.mktemp("small"), SMALL)


def bin_of(line: bytes) -> str:
    """Name the bin of a line as an exact reader must: blank, header, number of fields, then from the left."""
    if not line.strip():
        return "blank"
    fields = line.removesuffix(b"\r").split(b"\t")
    if fields[0].lower() == b"label":
        return "header"
    if len(fields) != 40:
        return f"{'short' if len(fields) < 40 else 'long'}:{len(fields)}"
    if fields[0] not in (b"0", b"1"):
        return "label"
    for j in range(1, 14):
        if fields[j] and not (re.fullmatch(rb"[+-]?\d+", fields[j]) and -(2**63) <= int(fields[j]) < 2**63):
            return f"int:I{j}"
    for c in range(1, 27):
        if fields[13 + c] and not re.fullmatch(rb"[0-9a-f]{8}", fields[13 + c]):
            return f"cat:C{c}"
    return "accepted"


def read_bins(path: Path) -> tuple[list[str], list[bytes]]:
    lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    assert lines.pop() == b""
    return [bin_of(line) for line in lines], lines


@pytest.mark.parametrize("day", range(3))
def test_the_ledger_is_what_an_exact_reader_finds(small, day):
    ledger, (bins, lines) = small.days[day], read_bins(small.path(day))
    found: dict[str, list[int]] = {}
    for number, name in enumerate(bins, start=1):
        found.setdefault(name, []).append(number)
    accepted = found.pop("accepted")
    assert ledger.num_lines == len(lines)
    assert ledger.num_accepted == len(accepted) == SMALL.rows[day]
    assert list(ledger.header_lines) == found.pop("header")
    assert {reason: list(numbers) for reason, numbers in ledger.quarantined.items()} == found
    assert ledger.num_crlf == sum(line.endswith(b"\r") for line in lines)
    assert ledger.num_positive == sum(lines[n - 1].startswith(b"1") for n in accepted)


def test_bytes_and_digest_are_those_of_the_file(small):
    for ledger in small.days:
        content = (small.folder / ledger.file).read_bytes()
        assert (ledger.num_bytes, ledger.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert ledger.has_bom == content.startswith(b"\xef\xbb\xbf") == (ledger.day == 2)


def test_every_reason_is_planted_and_blank_lines_are_in_one_file_only(small):
    for ledger in small.days:
        assert {fault.reason for fault in FAULTS} == set(ledger.quarantined) - {"blank"}
        assert ("blank" in ledger.quarantined) == (ledger.day == 1)


def test_each_line_has_its_label_and_probability(small):
    for day in range(3):
        planted, (bins, lines) = small.planted(day), read_bins(small.path(day))
        assert len(planted) == len(lines)
        accepted = np.array([name == "accepted" for name in bins])
        assert np.array_equal(np.isnan(planted["probability"]), ~accepted)
        labels = [int(line[:1]) if ok else -1 for line, ok in zip(lines, accepted)]
        assert planted["label"].tolist() == labels


def test_the_ledger_file_opens_to_the_same_dataset(small):
    assert CriteoLikeDataset.open(small.folder) == small
    assert json.loads((small.folder / "ledger.json").read_text())["config"]["seed"] == 5
    assert sorted(p.name for p in small.folder.iterdir()) == [
        "day_0.tsv",
        "day_1.tsv",
        "day_2.tsv",
        "ledger.json",
        "planted",
    ]


def test_a_longer_day_starts_with_the_same_rows(small, tmp_path):
    plain = {"num_days": 1, "seed": 5, "malformed_per_day": 0, "headers_per_day": 0, "crlf_per_day": 0}
    longer = write_criteo_like(tmp_path / "longer", CriteoLikeConfig(rows_per_day=20_000, **plain))
    shorter = write_criteo_like(tmp_path / "shorter", CriteoLikeConfig(rows_per_day=17_000, **plain))
    assert longer.path(0).read_bytes().startswith(shorter.path(0).read_bytes())
    accepted = [line.removesuffix(b"\r") for name, line in zip(*read_bins(small.path(0))) if name == "accepted"]
    assert b"\n".join(accepted) + b"\n" == longer.path(0).read_bytes()


@pytest.mark.parametrize("dispatch", ["on", "off"])
def test_the_first_100_000_rows_are_the_same_with_and_without_cpu_dispatch(dispatch, tmp_path):
    script = (
        "import sys; from rec.datasets.criteo_like import *;"
        "d = write_criteo_like(sys.argv[1], CriteoLikeConfig(num_days=1, rows_per_day=100_000));"
        "from numpy._core._multiarray_umath import __cpu_features__ as f, __cpu_dispatch__ as n;"
        "print(d.days[0].sha256, any(f[k] for k in n))"
    )
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    if dispatch == "off":
        environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(dispatchable())
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    digest, uses_dispatch = done.stdout.split()
    assert digest == FIRST_ROWS_SHA256
    if dispatch == "off":
        assert uses_dispatch == "False"


def dispatchable() -> list[str]:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__[name]]


def test_memory_does_not_grow_with_rows(tmp_path):
    peaks = []
    for num_rows in (40_000, 160_000):
        tracemalloc.start()
        write_criteo_like(tmp_path, CriteoLikeConfig(num_days=1, rows_per_day=num_rows))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_progress_counts_rows_over_all_days(tmp_path):
    calls = []
    config = CriteoLikeConfig(num_days=2, rows_per_day=(20_000, 10), malformed_per_day=0)
    write_criteo_like(tmp_path, config, lambda done, total: calls.append((done, total)))
    assert calls == [(16_384, 20_010), (20_000, 20_010), (20_010, 20_010)]


def test_days_and_rows_must_agree():
    with pytest.raises(ConfigError, match="rows_per_day has 2 numbers and num_days is 3; give one number a day"):
        parse_config(CriteoLikeConfig, {"num_days": 3, "rows_per_day": (5, 6)}, "recipe")
    with pytest.raises(ConfigError, match="every day needs at least one row"):
        parse_config(CriteoLikeConfig, {"num_days": 2, "rows_per_day": (5, 0)}, "recipe")


@pytest.mark.parametrize("planted", ["malformed_per_day", "headers_per_day", "crlf_per_day"])
def test_a_day_of_one_row_takes_no_planted_line(tmp_path, planted):
    none = {"malformed_per_day": 0, "headers_per_day": 0, "crlf_per_day": 0, "blank_day": None, "bom_day": None}
    with pytest.raises(ConfigError, match=f"a day of one row has no place for .*{planted}"):
        parse_config(CriteoLikeConfig, {"num_days": 2, "rows_per_day": (5, 1), **none, planted: 1}, "recipe")
    [day] = write_criteo_like(tmp_path, CriteoLikeConfig(num_days=1, rows_per_day=1, **none)).days
    assert (day.num_lines, (tmp_path / day.file).read_bytes().count(b"\n")) == (1, 1)


def test_a_folder_without_a_ledger_is_no_dataset(tmp_path):
    with pytest.raises(InputError, match=r"ledger\.json: no such file"):
        CriteoLikeDataset.open(tmp_path)
