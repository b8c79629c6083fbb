"""Arithmetic whose bits do not depend on the machine.

NumPy picks exp, log and sums by the CPU it finds, and their last bits differ. Everything that decides a byte of a
generated file is therefore made of integers and of the float operations that IEEE 754 rounds in one way only:
+ − × ÷, square root, floor, scaling by powers of two; never a float sum over an axis, never a matrix product.
"""

import numpy as np

# One octave is cut in this many steps.
OCTAVE_STEPS = 4096
_LOG2_E = 1.4426950408889634
# Mean and deviation of the sum of four independent uniform 16-bit numbers.
_BELL_MEAN = 2 * 65535
_BELL_DEVIATION = 37837


def mix32(number_B: np.ndarray, salt: int) -> np.ndarray:
    """Return a bijection of uint32 onto uint32 that looks random; another ``salt`` gives another bijection."""
    x = number_B.astype(np.uint32) ^ np.uint32(salt & 0xFFFFFFFF)
    x *= np.uint32(0x9E3779B1)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x85EBCA77)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE3D)
    x ^= x >> np.uint32(16)
    return x


def bell(bits_B: np.ndarray) -> np.ndarray:
    """Return a centred bell-shaped integer of uint64 bits: the sum of four 16-bit numbers less its mean.

    Divided by :func:`bell_deviation` it is close to a standard normal cut at ±3.46.
    """
    low = np.uint64(0xFFFF)
    total = bits_B & low
    for shift in (16, 32, 48):
        total += (bits_B >> np.uint64(shift)) & low
    return total.astype(np.int64) - _BELL_MEAN


def bell_deviation() -> int:
    return _BELL_DEVIATION


def signed_unit(number_B: np.ndarray, salt: int) -> np.ndarray:
    """Return a bell-shaped value of about unit deviation for each number, by hashing."""
    low = mix32(number_B, salt).astype(np.uint64)
    high = mix32(number_B, salt ^ 0x5BD1E995).astype(np.uint64)
    return bell(high << np.uint64(32) | low) / float(_BELL_DEVIATION)


def exp2_steps(step_B: np.ndarray) -> np.ndarray:
    """Return 2^(step / OCTAVE_STEPS) of integers."""
    fraction, root = np.ones(OCTAVE_STEPS), 2.0
    index = np.arange(OCTAVE_STEPS)
    half = OCTAVE_STEPS // 2
    while half:
        root = float(np.sqrt(root))
        fraction[(index & half) > 0] *= root
        half //= 2
    return np.ldexp(fraction[step_B & (OCTAVE_STEPS - 1)], (step_B >> 12).astype(np.int32))


def log2_1p(value_B: np.ndarray) -> np.ndarray:
    """Return log2(1 + value) of non-negative integers, taken as linear between powers of two."""
    mantissa, exponent = np.frexp(1.0 + value_B)
    return (exponent - 1) + (2.0 * mantissa - 1.0)


def power_eighths(base_B: np.ndarray, eighths: int) -> np.ndarray:
    """Return base^(eighths / 8)."""
    result, root = np.ones(len(base_B)), base_B.astype(np.float64)
    for _ in range(eighths // 8):
        result = result * root
    for bit in (4, 2, 1):
        root = np.sqrt(root)
        if eighths & bit:
            result = result * root
    return result


def sigmoid(logit_B: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^−logit), the logit rounded to 1/2840 (an octave step) first."""
    steps = np.rint(logit_B * -(_LOG2_E * OCTAVE_STEPS)).astype(np.int64)
    return 1.0 / (1.0 + exp2_steps(steps))
