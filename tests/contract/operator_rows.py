"""Rows that every operator must survive: missing, empty, unseen, extreme, not numbers, of every dtype and key kind."""

import math

import numpy as np

from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values

DENSE = (
    Column(name="count", role="dense", dtype="int64"),
    Column(name="nothing", role="dense", dtype="int64"),
    Column(name="constant", role="dense", dtype="int64"),
    Column(name="double", role="dense", dtype="float64"),
    Column(name="single", role="dense", dtype="float32"),
)
SPARSE = (
    Column(name="hex", role="sparse", dtype="string", key="hex32"),
    Column(name="number", role="sparse", dtype="int64", key="int64"),
    Column(name="te'xt`", role="sparse", dtype="string", key="string"),
    Column(name="absent", role="sparse", dtype="string", key="hex32"),
)
SCHEMA = FeatureSchema(columns=(*DENSE, *SPARSE))
FRAME_SCHEMA = (
    "row_key BIGINT, day INT, count BIGINT, nothing BIGINT, constant BIGINT, double DOUBLE, single FLOAT, "
    "hex STRING, number BIGINT, `te'xt```  STRING, absent STRING"
)
TRAIN_DAYS = (0, 1)
_COUNTS = [0, 1, -1, None, 250, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 7, None]
_DOUBLES = [0.5, -0.0, None, math.nan, math.inf, -math.inf, 1e300, -1e300, 1e-300, 3.25, -7.5, 0.1]
_HEXES = ["00000000", "7fffffff", "80000000", "ffffffff", None, "deadbeef", "1e100000", "00012345"]
_NUMBERS = [0, -1, 2**63 - 1, -(2**63), None, 5, 5, 2**57, 2**58]
_TEXTS = ["a", "b", "", None, " a", "a ", "ä", "日本", "a\0", "abcdefgh", "abcdefghi", "abcdefgh\0", "A", "'`\\"]


def make_rows(num_rows: int = 400) -> list[tuple]:
    """Return rows of days 0, 1 and 2; day 2 holds values that no train day has."""
    rng = np.random.default_rng(3)

    def pick(values: list, fresh: list, day: int):
        pool = values + fresh if day == 2 else values
        return pool[min(int(rng.exponential(len(pool) / 4)), len(pool) - 1)]

    rows = []
    for place in range(num_rows):
        day = place % 3
        double = _DOUBLES[place % len(_DOUBLES)]
        single = None if double is None else float(np.clip(double, -1e30, 1e30)) if math.isfinite(double) else double
        values = [_COUNTS[place % len(_COUNTS)], None, 7, double, single]
        values += [
            pick(_HEXES, ["12345678", "ffffff00"], day),
            pick(_NUMBERS, [17, -99], day),
            pick(_TEXTS, ["zzz", "abcdefgh!"], day),
            None,
        ]
        rows.append((place * 7919 % 100_003, day, *values))
    return rows


def to_values(rows: list, names: list[str], schema: FeatureSchema) -> dict[str, Values]:
    """Return rows, in the order of ``names``, as a serving request holds them."""
    arrays = {}
    for column in schema.columns:
        place = names.index(column.name)
        given = [row[place] for row in rows]
        missing_B = np.array([v is None for v in given], bool)
        if column.role == "sparse":
            data_B = np.empty(len(given), object)
            data_B[:] = [b"" if v is None else str(v).encode() for v in given]
        else:
            data_B = np.array([0 if v is None else v for v in given], column.dtype)
        arrays[column.name] = Values(data_B, missing_B)
    return arrays
