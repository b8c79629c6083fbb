"""Look keys up in two arrays that are part of the query itself: on a CPU a fraction of a join's cost.

Cuckoo hashing (Pagh and Rodler, 2004, https://doi.org/10.1016/j.jalgor.2003.12.002): a key stands in one of two slots,
told by the low and the high half of its xxhash64, so that a look-up reads at most two of them. Each column has a range
of slots of its own, a power of two at most half full; all ranges lie end to end in one array of keys and one of ids.
The arrays reach the query as session variables, which Spark's analysis turns into literals.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from rec.core.hashing import xxhash64
from rec.core.ids import UNSEEN
from rec.ops.op import quoted
from rec.ops.vocabulary import NumberKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROUNDS = 500


@contextmanager
def slot_lookups(
    spark: "SparkSession", vocabularies: Mapping[str, NumberKeys], key_names: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield for each column the SQL text of the id of the key in column ``key_names[name]``: UNSEEN where it has none.

    The texts hold within the block; a frame made of them holds after it.
    """
    tables = {name: fill_slots(keys) for name, keys in vocabularies.items()}
    keys_S = np.concatenate([np.empty(0, np.int64), *[keys for keys, _ in tables.values()]])
    ids_S = np.concatenate([np.empty(0, np.int32), *[ids for _, ids in tables.values()]])
    # Distinct names: several threads of a session may encode at once.
    prefix, texts, offset = f"slots_{uuid.uuid4().hex}", {}, 0
    try:
        _set_variable(spark, f"{prefix}_keys", keys_S, "ARRAY<BIGINT>")
        _set_variable(spark, f"{prefix}_ids", ids_S, "ARRAY<INT>")
        for name, (keys, _) in tables.items():
            texts[name] = _lookup_text(quoted(key_names[name]), prefix, offset, len(keys))
            offset += len(keys)
        yield texts
    finally:
        for part in ("keys", "ids"):
            spark.sql(f"DROP TEMPORARY VARIABLE IF EXISTS {prefix}_{part}")


def fill_slots(vocabulary: NumberKeys) -> tuple[np.ndarray, np.ndarray]:
    """Return (keys_S int64, ids_S int32): the slots of a vocabulary. An empty one: a key without entry, UNSEEN."""
    keys_V, hash_V = vocabulary.keys_V, xxhash64(vocabulary.keys_V)
    num_slots = 2 << max(len(keys_V) - 1, 0).bit_length()
    while (entry_S := _placed(hash_V, num_slots)) is None:
        num_slots *= 2
    is_filled_S = entry_S >= 0
    keys_S = np.full(num_slots, _absent(keys_V), np.int64)
    ids_S = np.full(num_slots, UNSEEN, np.int32)
    keys_S[is_filled_S] = keys_V[entry_S[is_filled_S]]
    ids_S[is_filled_S] = vocabulary.ids_V[entry_S[is_filled_S]]
    return keys_S, ids_S


def _placed(hash_V: np.ndarray, num_slots: int) -> np.ndarray | None:
    """Return the entry of each slot, -1 for none: all that are open are placed at once, and push out who stood there.

    None where that does not come to an end.
    """
    mask = np.uint64(num_slots - 1)
    slot_2V = np.stack([hash_V & mask, hash_V >> np.uint64(32) & mask]).astype(np.int64)
    entry_S = np.full(num_slots, -1, np.int64)
    open_P, side_V = np.arange(len(hash_V)), np.zeros(len(hash_V), np.int64)
    for _ in range(_ROUNDS):
        if not len(open_P):
            return entry_S
        place_P = slot_2V[side_V[open_P], open_P]
        before_P = entry_S[place_P]
        entry_S[place_P] = open_P
        # Of several that go to one slot the last stays.
        beaten = open_P[entry_S[place_P] != open_P]
        open_P = np.concatenate([beaten, np.unique(before_P[before_P >= 0])])
        side_V[open_P] ^= 1
    return None


def _absent(keys_V: np.ndarray) -> int:
    """Return the smallest number from 0 that is no key."""
    small = np.zeros(len(keys_V) + 1, bool)
    small[keys_V[(keys_V >= 0) & (keys_V < len(small))]] = True
    return int(np.argmin(small))


def _lookup_text(key: str, prefix: str, offset: int, num_slots: int) -> str:
    places = [
        f"CAST({offset}L + (shiftrightunsigned(xxhash64({key}), {shift}) & {num_slots - 1}L) AS INT)"
        for shift in (0, 32)
    ]
    cases = [f"WHEN get({prefix}_keys, {place}) = {key} THEN get({prefix}_ids, {place})" for place in places]
    return f"CASE {' '.join(cases)} ELSE {UNSEEN} END"


def _set_variable(spark: "SparkSession", name: str, values: np.ndarray, sql_type: str) -> None:
    import pyarrow as pa

    rows = pa.ListArray.from_arrays([0, len(values)], pa.array(values))
    spark.createDataFrame(pa.table({"slots": rows})).createOrReplaceTempView(name)
    try:
        spark.sql(f"DECLARE VARIABLE {name} {sql_type}")
        spark.sql(f"SET VARIABLE {name} = (SELECT slots FROM {name})")
    finally:
        spark.catalog.dropTempView(name)
