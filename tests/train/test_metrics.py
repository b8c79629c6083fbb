"""Exact AUC, log loss and calibration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from rec.core.errors import TrainingError
from rec.train.metrics import ScoreCounts
from rec.train.scoring import evaluate_scores

logits_and_labels = st.lists(
    st.tuples(st.floats(-40, 40, width=32) | st.sampled_from([0.0, -0.0, 1.5]), st.integers(0, 1)),
    min_size=2,
    max_size=80,
).filter(lambda rows: len({label for _, label in rows}) == 2)


def arrays(rows):
    return np.array([r[0] for r in rows], np.float32), np.array([r[1] for r in rows], np.float32)


def evaluate(parts, days=(1,)):
    return ScoreCounts.merge(parts).totals().evaluation(days)


@given(logits_and_labels)
@settings(max_examples=150, deadline=None)
def test_figures_are_those_of_scikit_learn(rows):
    logits, labels = arrays(rows)
    found = evaluate([ScoreCounts.of(logits, labels)])
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert found.auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    expected = np.mean(np.logaddexp(0, np.where(labels == 1, -1, 1) * logits.astype(np.float64)))
    assert found.log_loss == pytest.approx(expected, abs=1e-10)
    rate = labels.mean(dtype=np.float64)
    assert found.normalized_entropy == pytest.approx(expected / log_loss(labels, np.full(len(labels), rate)), rel=1e-6)
    assert found.calibration == pytest.approx(probabilities.sum() / labels.sum(), rel=1e-6)
    assert (found.num_rows, found.num_positive) == (len(rows), int(labels.sum()))


@given(logits_and_labels, st.lists(st.integers(0, 5), min_size=80, max_size=80), st.randoms())
@settings(max_examples=150, deadline=None)
def test_neither_order_nor_split_of_rows_changes_a_bit(rows, split, random):
    whole = evaluate([ScoreCounts.of(*arrays(rows))])
    shuffled = list(zip(rows, split))
    random.shuffle(shuffled)
    parts = [ScoreCounts.of(*arrays([r for r, s in shuffled if s == part])) for part in range(6)]
    assert evaluate(parts) == whole


@given(logits_and_labels, st.floats(-40, 40, width=32))
@settings(max_examples=100, deadline=None)
def test_totals_of_ranges_of_logits_add_up(rows, bound):
    logits, labels = arrays(rows)
    low, high = (ScoreCounts.of(logits[m], labels[m]).totals() for m in (logits < bound, logits >= bound))
    assert low.add_above(high) == ScoreCounts.of(logits, labels).totals()


def test_ties_count_half():
    found = evaluate([ScoreCounts.of(np.array([1, 1, 0, -0.0], np.float32), np.array([1, 0, 1, 0]))])
    assert found.auc == (1 + 0.5 + 0.5) / 4


def test_sums_beyond_int64_stay_exact():
    many = 3 * 10**9
    counts = ScoreCounts(np.array([-1, 1], np.float32), np.array([1, many]), np.array([many, 1]))
    totals = counts.totals()
    assert totals.doubled_wins == 1 * many + many * (2 * many + 1)
    assert totals.doubled_wins > 2**63


def random_rows(num_rows):
    generator = np.random.Generator(np.random.PCG64(3))
    logits = np.round(generator.normal(size=num_rows), 2).astype(np.float32)
    return logits, (generator.random(num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)


def evaluate_share(ranks, sizes):
    logits, labels = random_rows(sum(sizes))
    start = sum(sizes[: ranks.rank])
    mine = slice(start, start + sizes[ranks.rank])
    return evaluate_scores(ScoreCounts.of(logits[mine], labels[mine]), (5,), ranks)


@pytest.mark.parametrize("sizes", [(1000, 1000), (1999, 1), (0, 2000)])
def test_ranks_agree_with_one_process_to_the_bit(two_ranks, sizes):
    whole = evaluate([ScoreCounts.of(*random_rows(2000))], (5,))
    assert two_ranks.run(evaluate_share, sizes) == [whole, whole]


def test_three_ranks_agree_too(three_ranks):
    whole = evaluate([ScoreCounts.of(*random_rows(2000))], (5,))
    assert three_ranks.run(evaluate_share, (700, 1300, 0)) == [whole] * 3


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_names_day_and_counts(label):
    counts = ScoreCounts.of(np.zeros(7, np.float32), np.full(7, label))
    expected = rf"day 22: {7 * label} positive and {7 - 7 * label} negative rows; .* choose days that hold both"
    with pytest.raises(TrainingError, match=expected):
        evaluate([counts], (22,))


def test_no_rows_is_no_figure():
    with pytest.raises(TrainingError, match="days 3, 4: 0 positive and 0 negative rows"):
        evaluate([], (3, 4))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused(bad):
    with pytest.raises(TrainingError, match=r"1 of 3 logits are not finite \(-?(nan|inf)\)"):
        ScoreCounts.of(np.array([0, bad, 1], np.float32), np.zeros(3))


@pytest.mark.parametrize("logit", [2.0**22, 9e6, 1e30])
def test_a_loss_of_any_size_is_counted_and_the_auc_with_it(logit):
    counts = ScoreCounts.of(np.array([logit, -1.0, -2.0], np.float32), np.array([0.0, 1.0, 0.0]))
    found = counts.totals().evaluation((0,))
    # A row's loss is bounded by 2^22: a training that diverged is never the best one.
    assert found.log_loss == pytest.approx((2.0**22 + np.log1p(np.e) + np.log1p(np.exp(-2.0))) / 3, rel=1e-12)
    assert found.auc == 0.5


def test_a_label_beside_0_and_1_is_refused():
    with pytest.raises(TrainingError, match=r"label 2.0 is neither 0 nor 1"):
        ScoreCounts.of(np.zeros(2, np.float32), np.array([1.0, 2.0]))
