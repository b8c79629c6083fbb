"""Statistics of single columns against what they are declared to be."""

import numpy as np
import pytest

from rec.datasets.columns import DENSE, SPARSE
from rec.datasets.rows import CHUNK_ROWS, RowGenerator, Rows


def many_rows(day: int, num_chunks: int = 8) -> Rows:
    generator = RowGenerator(1, day)
    chunks = [generator.chunk(k) for k in range(num_chunks)]
    return Rows(*(np.concatenate(parts, axis=-1) for parts in zip(*(vars(c).values() for c in chunks))))


@pytest.fixture(scope="module")
def rows() -> Rows:
    return many_rows(0)


def test_there_are_thirteen_integers_and_26_categories(rows):
    assert rows.value_DB.shape[0] == 13
    assert rows.key_FB.shape[0] == 26


def test_missing_shares_are_those_declared(rows):
    for column, missing in zip((*DENSE, *SPARSE), (*rows.dense_missing_DB, *rows.sparse_missing_FB)):
        assert missing.mean() == pytest.approx(column.missing, abs=0.01)


def test_negative_integers_are_there_at_their_share_and_have_one_digit(rows):
    for column, values in zip(DENSE, rows.value_DB):
        assert (values < 0).mean() == pytest.approx(column.negative, abs=0.005)
        assert values.min() >= -3
        assert values.max() < 10**7
    assert set(rows.value_DB[1][rows.value_DB[1] < 0]) == {-1, -2, -3}


def test_median_and_spread_of_integers_are_those_declared(rows):
    for column, values in zip(DENSE, rows.value_DB):
        for deviations in (0, 1):
            bound = 2 ** (column.center + deviations * column.spread)
            expected = (0.5, 0.842)[deviations]
            # The floor: an integer is below the bound where the number it came from is below the next integer.
            share = (values[values >= 0] < np.ceil(bound)).mean()
            assert share >= expected - 0.02, column
            assert (values[values >= 0] < np.floor(bound)).mean() <= expected + 0.02, column


@pytest.mark.parametrize("c", range(26))
def test_values_follow_their_power_law(rows, c):
    column = SPARSE[c]
    rank = np.arange(1, column.cardinality + 1)
    weight = (rank + column.offset) ** (-column.eighths / 8)
    counts = np.sort(np.unique(rows.key_FB[c], return_counts=True)[1])[::-1]
    num_rows, head = rows.key_FB.shape[1], min(20, column.cardinality)
    expected = num_rows * weight[:head] / weight.sum()
    assert np.abs(counts[:head] - expected).max() < 5 * np.sqrt(expected.max()) + 0.01 * expected.max()


def test_columns_reach_a_million_values():
    sizes = [column.cardinality for column in SPARSE]
    assert max(sizes) == 1_000_000
    assert min(sizes) == 3
    largest = max(SPARSE, key=lambda column: column.cardinality)
    ends = largest.draw(np.array([0, 2**64 - 1], np.uint64))
    assert ends.tolist() == [1, largest.cardinality]


def test_each_day_brings_values_never_seen_and_keeps_the_frequent_ones(rows):
    tomorrow = many_rows(1)
    for c, column in enumerate(SPARSE):
        before, after = (set(r.key_FB[c].tolist()) for r in (rows, tomorrow))
        values, counts = np.unique(rows.key_FB[c], return_counts=True)
        assert set(values[np.argsort(counts)[-3:]].tolist()) <= after
        if column.cardinality > 5_000:
            assert after - before


def test_a_renewed_rank_never_gets_an_earlier_value_back():
    column = SPARSE[2]
    ranks = np.arange(1, 20_000)
    days = np.stack([column.identity(ranks, day) for day in range(70)])
    changes = (np.diff(days, axis=0) != 0).mean(axis=1)
    assert changes == pytest.approx(1 / 64, abs=0.005)
    assert (np.diff(days, axis=0) >= 0).all()
    assert len(np.unique(days)) == len(ranks) + np.count_nonzero(np.diff(days, axis=0))


def test_a_chunk_depends_on_seed_day_and_number_alone():
    again = RowGenerator(1, 0)
    again.chunk(5)
    first = RowGenerator(1, 0).chunk(3)
    assert np.array_equal(first.key_FB, again.chunk(3).key_FB)
    for other in (RowGenerator(2, 0).chunk(3), RowGenerator(1, 1).chunk(3), RowGenerator(1, 0).chunk(4)):
        assert not np.array_equal(first.value_DB, other.value_DB)
    assert first.label_B.shape == (CHUNK_ROWS,)
