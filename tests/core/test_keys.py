"""The key of a categorical value."""

import json

import numpy as np
import pytest

from rec.core.errors import InputError
from rec.core.keys import parse_keys


def objects(*values):
    out = np.empty(len(values), object)
    out[:] = values
    return out


def test_hex32_is_unsigned(cases):
    expected = json.loads((cases / "12_hex_uint32_sign/expected.json").read_text())
    keys, missing = parse_keys(objects(*[v.encode() for v in expected["C1"]]), "hex32", "C1")
    assert keys.tolist() == expected["unsigned"]
    assert not missing.any()


def test_int64_ends_and_missing():
    keys, missing = parse_keys(objects(b"-9223372036854775808", b"9223372036854775807", b"", None), "int64", "C1")
    assert keys[:2].tolist() == [-(2**63), 2**63 - 1]
    assert missing.tolist() == [False, False, True, True]


def test_leading_zeros_and_signs_are_no_part_of_a_number():
    keys, _ = parse_keys(objects(b"+7", b"-0", b"007", b"-" + b"0" * 5000 + b"7"), "int64", "C1")
    assert keys.tolist() == [7, 0, 7, -7]


def test_strings_keep_their_bytes():
    keys, missing = parse_keys(objects(b" a", b"a ", "é".encode(), b""), "string", "C1")
    assert keys.tolist() == [b" a", b"a ", b"\xc3\xa9", b""]
    assert missing.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"ABCDEF01", "hex32"),
        (b"abc", "hex32"),
        (b"abcdef012", "hex32"),
        (b"abcdef0\n", "hex32"),
        (b"abcdef01\n", "hex32"),
        (b"NULL", "hex32"),
        (b"9223372036854775808", "int64"),
        (b"1.5", "int64"),
        (b" 1", "int64"),
        (b"1\n", "int64"),
        # Beyond what Python converts.
        (b"1" * 5000, "int64"),
        (b"-" + b"0" * 5000 + b"9" * 20, "int64"),
    ],
)
def test_what_has_no_key_is_named(raw, kind):
    with pytest.raises(InputError, match="C7"):
        parse_keys(objects(raw), kind, "C7")
