"""Slots: every key finds its own id, and no other key finds one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rec.core.hashing import xxhash64
from rec.core.ids import UNSEEN
from rec.ops.slots import fill_slots, slot_lookups
from rec.ops.vocabulary import NumberKeys

KEYS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 40), st.integers(0, 63).map(lambda k: k - 32 << 58))


def numbers(keys) -> NumberKeys:
    keys_V = np.array(sorted(keys), np.int64)
    return NumberKeys(keys_V, np.arange(3, 3 + len(keys_V)))


def found(slots, keys_B):
    """Return the ids of keys in slots, read as the query reads them."""
    keys_S, ids_S = slots
    hash_B = xxhash64(keys_B)
    ids_B = np.full(len(keys_B), UNSEEN)
    for shift in (32, 0):
        place_B = (hash_B >> np.uint64(shift) & np.uint64(len(keys_S) - 1)).astype(np.int64)
        ids_B = np.where(keys_S[place_B] == keys_B, ids_S[place_B], ids_B)
    return ids_B


@settings(max_examples=200, deadline=None)
@given(keys=st.sets(KEYS, max_size=80), others=st.lists(KEYS, max_size=40))
def test_slots_answer_as_the_sorted_keys_do(keys, others):
    vocabulary = numbers(keys)
    asked_B = np.array([*keys, *others, 0, -1], np.int64)
    assert found(fill_slots(vocabulary), asked_B).tolist() == vocabulary.look_up(asked_B).tolist()


@pytest.mark.parametrize("num_keys", [2**17 - 1, 2**17, 200_000])
@pytest.mark.parametrize("step", [1, 2**20, 2**44])
def test_slots_hold_many_keys_that_lie_evenly(num_keys, step):
    vocabulary = numbers(range(0, num_keys * step, step))
    slots = fill_slots(vocabulary)
    assert found(slots, vocabulary.keys_V).tolist() == vocabulary.ids_V.tolist()
    assert (found(slots, vocabulary.keys_V - 1)[1:] == (vocabulary.ids_V[:-1] if step == 1 else UNSEEN)).all()
    assert len(slots[0]) <= 8 * num_keys


def test_the_hash_is_that_of_spark(spark):
    keys = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 0x0123456789ABCDEF]
    rows = spark.createDataFrame([(key,) for key in keys], "k BIGINT").selectExpr("xxhash64(k)").collect()
    assert xxhash64(np.array(keys)).view(np.int64).tolist() == [row[0] for row in rows]


def test_no_variable_is_left_and_an_empty_vocabulary_has_no_ids(spark):
    df = spark.createDataFrame([(0, 5), (1, None)], "a BIGINT, b BIGINT")
    vocabularies = {"x": numbers([0, 7]), "y": numbers([])}
    with slot_lookups(spark, vocabularies, {"x": "a", "y": "b"}) as texts:
        encoded = df.selectExpr(f"{texts['x']} AS x", f"{texts['y']} AS y")
    assert [tuple(row) for row in encoded.collect()] == [(3, UNSEEN), (UNSEEN, UNSEEN)]
    assert not [v for v in spark.catalog.listTables() if v.name.startswith("slots_")]
