"""Meaning of an encoded id.

=====================  =======================================================
0                      padding, never a value
1                      missing
2                      unseen in training, or below ``freq_threshold``
3 … 2 + num_buckets    hash buckets for unseen values, where asked for
then                   the vocabulary, by (count descending, value ascending)
=====================  =======================================================
"""

PADDING = 0
MISSING = 1
UNSEEN = 2
NUM_RESERVED = 3


def first_vocabulary_id(num_buckets: int = 0) -> int:
    """Return the id of a column's most frequent value."""
    return NUM_RESERVED + num_buckets
