"""Arithmetic that gives the same bits on every CPU, against what it stands for."""

import numpy as np
import pytest

from rec.datasets import exact


def test_mix32_is_a_bijection_and_its_salt_matters():
    numbers = np.arange(1_000_000)
    mixed = exact.mix32(numbers, 7)
    assert len(np.unique(mixed)) == len(numbers)
    assert np.count_nonzero(mixed == exact.mix32(numbers, 8)) < 10


def test_bell_is_nearly_normal():
    bits = np.random.SFC64(1).random_raw(200_000)
    z = exact.bell(bits) / exact.bell_deviation()
    assert abs(z.mean()) < 0.01
    assert z.std() == pytest.approx(1, abs=0.01)
    assert np.quantile(z, 0.975) == pytest.approx(1.96, abs=0.05)


def test_signed_unit_has_unit_deviation():
    values = exact.signed_unit(np.arange(100_000), 3)
    assert abs(values.mean()) < 0.02
    assert values.std() == pytest.approx(1, abs=0.02)


def test_exp2_steps_is_a_power_of_two():
    steps = np.arange(-5 * exact.OCTAVE_STEPS, 20 * exact.OCTAVE_STEPS, 17)
    np.testing.assert_allclose(exact.exp2_steps(steps), np.exp2(steps / exact.OCTAVE_STEPS), rtol=1e-14)


def test_log2_1p_meets_powers_of_two_and_stays_near_between():
    values = np.arange(100_000)
    assert exact.log2_1p(np.array([0, 1, 3, 1023])).tolist() == [0, 1, 2, 10]
    assert np.abs(exact.log2_1p(values) - np.log2(1 + values)).max() < 0.087
    assert (np.diff(exact.log2_1p(values)) > 0).all()


@pytest.mark.parametrize("eighths", [4, 6, 7, 8, 9, 10, 16])
def test_power_eighths_is_a_power(eighths):
    base = np.array([1.0, 2.0, 3.5, 1e6])
    np.testing.assert_allclose(exact.power_eighths(base, eighths), base ** (eighths / 8), rtol=1e-14)


def test_sigmoid_is_near_the_logistic_function():
    logits = np.linspace(-15, 15, 10_001)
    np.testing.assert_allclose(exact.sigmoid(logits), 1 / (1 + np.exp(-logits)), rtol=2e-4)
