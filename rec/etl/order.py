"""The order of rows within a day, and how a day is cut into files: functions of origin and number alone.

Rows stand in the order of xxhash64(row_key, seed of the format), over all files of the day in path order. Each file
holds an equal slice of the hash's range, so that no sample of the rows is taken and any cluster writes the same files.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMAT_SEED = 7
ROW_GROUP_ROWS = 65_536
_FILE_ROWS = 4 * ROW_GROUP_ROWS
_SLICE_BITS = 31
_MASK = 0xFFFFFFFF


def ordered(frame: "DataFrame", num_rows: int) -> "DataFrame":
    """Return a day's rows in order, one partition a file; ``frame`` has ``row_key`` and ``day``."""
    num_files = max(1, math.ceil(num_rows / _FILE_ROWS))
    names = [f"`{name}`" for name in frame.columns]
    hashed = frame.selectExpr(*names, f"xxhash64(row_key, {FORMAT_SEED}L) AS _place")
    high = f"shiftright(_place, {64 - _SLICE_BITS}) + {1 << _SLICE_BITS - 1}L"
    number = f"CAST(shiftright(({high}) * {num_files}L, {_SLICE_BITS}) AS INT)"
    keys = ", ".join(str(key) for key in partition_keys(num_files))
    sliced = hashed.selectExpr(*names, "_place", f"element_at(array({keys}), {number} + 1) AS _slice")
    # `day` first: the writer wants rows by partition value and would sort again, without regard to this order.
    in_order = sliced.repartition(num_files, "_slice").sortWithinPartitions("day", "_place", "row_key")
    return in_order.selectExpr(*names)


def partition_keys(num_partitions: int) -> list[int]:
    """Return for each partition an int that Spark's hash partitioning sends there."""
    keys: dict[int, int] = {}
    candidate = 0
    while len(keys) < num_partitions:
        keys.setdefault(_murmur3(candidate) % num_partitions, candidate)
        candidate += 1
    return [keys[partition] for partition in range(num_partitions)]


def _murmur3(value: int, seed: int = 42) -> int:
    """Return the signed 32-bit MurmurHash3 of an int, as Spark's ``hash`` gives it."""
    mixed = value * 0xCC9E2D51 & _MASK
    mixed = _rotated(mixed, 15) * 0x1B873593 & _MASK
    state = _rotated(seed ^ mixed, 13) * 5 + 0xE6546B64 & _MASK
    state ^= 4
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    state ^= state >> 16
    return state - (1 << 32) if state >= 1 << 31 else state


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
