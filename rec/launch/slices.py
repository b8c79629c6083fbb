"""Rows in pieces that a driver holds, and in requests of a server."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Rows at once: bounds the driver's memory, whatever the size of the source.
SLICE_ROWS = 250_000
BATCH_ROWS = 2048


def sliced(frame: "DataFrame", first_keys: Sequence[int]) -> "Iterator[pa.Table]":
    """Yield the rows by row_key, a table from each of the ascending keys up to the next and one from the last on."""
    for key, following in zip_longest(first_keys, first_keys[1:]):
        end = "" if following is None else f" AND row_key < {following}L"
        yield frame.where(f"row_key >= {key}L{end}").orderBy("row_key").toArrow()
