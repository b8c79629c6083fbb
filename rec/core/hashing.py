"""xxHash64 of 64-bit integers, as Spark's ``xxhash64`` gives it.

Source of the function: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, for an input of eight bytes.
"""

import numpy as np

# The seed where none is given, as in Spark.
SEED = 42
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def xxhash64(values_B: np.ndarray, seed: int = SEED) -> np.ndarray:
    """Return the uint64 hashes of an int64 array."""
    words = np.asarray(values_B, np.int64).view(np.uint64)
    state = np.uint64(seed) + _PRIME_5 + np.uint64(8)
    hashes = _rotated(words * _PRIME_2, 31) * _PRIME_1 ^ state
    hashes = _rotated(hashes, 27) * _PRIME_1 + _PRIME_4
    hashes = (hashes ^ hashes >> np.uint64(33)) * _PRIME_2
    hashes = (hashes ^ hashes >> np.uint64(29)) * _PRIME_3
    return hashes ^ hashes >> np.uint64(32)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)
