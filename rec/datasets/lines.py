"""Rows as tab-separated text: every field is laid out at its full width, then what is not text is dropped."""

import numpy as np

from rec.datasets.rows import Rows

_FIELD = 8
_HEX4 = np.frombuffer(b"".join(b"%04x" % i for i in range(65536)), np.uint32)
_DECIMAL4 = np.frombuffer(b"".join(b"%04d" % i for i in range(10000)), np.uint32)
_MINUS = ord("-")


def format_rows(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return (all lines as uint8, the offset at which each line ends, its line feed included)."""
    num_dense, num_rows = rows.value_DB.shape
    num_fields = num_dense + len(rows.key_FB)
    text = np.full((num_rows, 2 + num_fields * (_FIELD + 1)), ord("\t"), np.uint8)
    keep = np.ones(text.shape, bool)
    text[:, 0] = ord("0") + rows.label_B
    # Views: writing to a field writes to the line.
    field_text = text[:, 2:].reshape(num_rows, num_fields, _FIELD + 1)[:, :, :_FIELD]
    field_keep = keep[:, 2:].reshape(num_rows, num_fields, _FIELD + 1)[:, :, :_FIELD]
    for j, (value_B, missing_B) in enumerate(zip(rows.value_DB, rows.dense_missing_DB)):
        field_text[:, j], field_keep[:, j] = _integers(value_B)
        field_keep[missing_B, j] = False
    for c, (key_B, missing_B) in enumerate(zip(rows.key_FB, rows.sparse_missing_FB), start=num_dense):
        field_text[:, c] = _halves(_HEX4[key_B >> np.uint32(16)], _HEX4[key_B & np.uint32(0xFFFF)])
        field_keep[missing_B, c] = False
    text[:, -1] = ord("\n")
    return text[keep], np.cumsum(np.count_nonzero(keep, axis=1))


def _halves(high_B: np.ndarray, low_B: np.ndarray) -> np.ndarray:
    """Return [B, 8] characters of two times four."""
    return np.stack([high_B, low_B], 1).view(np.uint8)


def _integers(value_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ([B, 8] right-aligned characters, which of them to keep). Negative ones have one digit."""
    size_B = np.abs(value_B)
    characters = _halves(_DECIMAL4[size_B // 10_000], _DECIMAL4[size_B % 10_000])
    negative_B = value_B < 0
    characters[negative_B, _FIELD - 2] = _MINUS
    width_B = 1 + negative_B.astype(np.int8)
    for power in range(1, _FIELD):
        width_B += size_B >= 10**power
    return characters, np.arange(_FIELD) >= (_FIELD - width_B)[:, None]
