"""The key of a categorical value: what its identity is, in NumPy.

``hex32``: exactly eight lower-case hex digits, read as an unsigned number in an int64.
``int64``: a sign and digits within int64. ``string``: the value itself, compared by its UTF-8 bytes, untrimmed.
"""

import re
from typing import Literal

import numpy as np

from rec.core.errors import InputError

KeyKind = Literal["hex32", "int64", "string"]

HEX32_PATTERN = "^[0-9a-f]{8}$"
# \Z and not $: the latter lets a trailing newline pass.
_HEX32 = re.compile(rb"[0-9a-f]{8}\Z")
# At most as many digits as int64 has: Python refuses to convert thousands of them.
_INT64 = re.compile(rb"([+-]?)0*([0-9]{1,19})\Z")
_NO_DIGIT = 255
_DIGIT_OF_BYTE = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT_OF_BYTE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def parse_key(raw: bytes, kind: KeyKind, column: str) -> int | bytes:
    """Return the key of one non-empty raw value. Raises InputError naming column and value when it has none."""
    if kind == "string":
        return raw
    if kind == "hex32":
        if _HEX32.match(raw):
            return int(raw, 16)
        raise InputError(
            f"{column}: {raw!r} is not eight lower-case hex digits; send the raw value or empty for missing"
        )
    found = _INT64.match(raw)
    if found and _INT64_MIN <= (number := int(found[1] + found[2])) <= _INT64_MAX:
        return number
    raise InputError(f"{column}: {raw[:40]!r} is not an integer within int64; send digits or empty for missing")


def parse_keys(raw: np.ndarray, kind: KeyKind, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (keys_B, missing_B) of an object array of bytes; empty or None means missing.

    Keys are int64 for ``hex32`` and ``int64`` and object (bytes) for ``string``; a missing row's key is 0 or b"".
    """
    values = raw.tolist()
    try:
        lengths_B = np.fromiter(map(len, values), np.int64, len(values))
    except TypeError:
        values = [v or b"" for v in values]
        lengths_B = np.fromiter(map(len, values), np.int64, len(values))
    missing_B = lengths_B == 0
    if kind == "string":
        keys = np.empty(len(values), object)
        keys[:] = values
        return keys, missing_B
    if kind == "hex32":
        keys = np.zeros(len(values), np.int64)
        keys[~missing_B] = _parse_hex32(values, lengths_B, column)
        return keys, missing_B
    numbers = (0 if gone else parse_key(v, kind, column) for v, gone in zip(values, missing_B.tolist()))
    return np.fromiter(numbers, np.int64, len(values)), missing_B


def _parse_hex32(values: list[bytes], lengths_B: np.ndarray, column: str) -> np.ndarray:
    """Return the numbers of the values that are not empty."""
    digits = _DIGIT_OF_BYTE[np.frombuffer(b"".join(values), np.uint8)]
    if ((lengths_B != 0) & (lengths_B != 8)).any() or (digits == _NO_DIGIT).any():
        for value in filter(None, values):
            parse_key(value, "hex32", column)
    digits_P8 = digits.reshape(-1, 8)
    bytes_P4 = digits_P8[:, 0::2] << 4 | digits_P8[:, 1::2]
    return np.ascontiguousarray(bytes_P4).view(">u4").ravel()
