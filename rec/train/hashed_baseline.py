"""Logistic regression on hashed raw fields: the baseline of a small Criteo file, which needs no encoding at all."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from rec.core.errors import InputError
from rec.train.metrics import ScoreCounts

_NUM_FIELDS, _NUM_DENSE = 39, 13
_NUM_BUCKETS = 2**18
_PENALTIES = (100.0, 50.0, 20.0, 10.0)
_MAX_ITERATIONS = 300


@dataclass(frozen=True)
class HashedRows:
    """``bucket_BF`` holds the bucket of each field; ``line_B`` the rows' line numbers in the file, from 1."""

    bucket_BF: np.ndarray
    label_B: np.ndarray
    line_B: np.ndarray

    def select(self, rows_B: np.ndarray) -> "HashedRows":
        return HashedRows(self.bucket_BF[rows_B], self.label_B[rows_B], self.line_B[rows_B])

    def lines(self, first: int, last: int | None = None) -> "HashedRows":
        """Return the rows of lines ``first`` … ``last``, to the end where ``last`` is left out."""
        return self.select((self.line_B >= first) & (self.line_B <= (last or self.line_B[-1])))

    def one_hot(self) -> csr_matrix:
        num_rows, num_fields = self.bucket_BF.shape
        starts = np.arange(0, self.bucket_BF.size + 1, num_fields)
        ones = np.ones(self.bucket_BF.size, np.float32)
        return csr_matrix((ones, self.bucket_BF.ravel(), starts), shape=(num_rows, _NUM_BUCKETS))


@dataclass(frozen=True)
class HashedBaselineResult:
    """``logit_B`` of the test rows; ``penalty`` and ``valid_auc`` tell how the fit was chosen."""

    logit_B: np.ndarray
    penalty: float
    valid_auc: float
    test_auc: float


def read_hashed_rows(path: str | Path) -> HashedRows:
    """Hash the rows of a labelled tab-separated Criteo file; lines that are no labelled row are left out.

    Raises InputError where no row is left.
    """
    buckets, labels, lines = [], [], []
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            label, *fields = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n").split(b"\t")
            row = _buckets(fields) if label in (b"0", b"1") and len(fields) == _NUM_FIELDS else None
            if row is not None:
                buckets.append(row)
                labels.append(int(label))
                lines.append(number)
    if not lines:
        raise InputError(
            f"{path}: no line is a labelled row of {_NUM_FIELDS + 1} tab-separated fields; give such a file"
        )
    return HashedRows(np.array(buckets, np.int32), np.array(labels), np.array(lines))


def hashed_logistic_regression(train: HashedRows, valid: HashedRows, test: HashedRows) -> HashedBaselineResult:
    """Choose the ridge penalty on valid, fit again on train and valid together, score the test rows once."""
    aucs = {p: _auc(_fit(p, train), valid) for p in _PENALTIES}
    penalty = max(aucs, key=lambda p: aucs[p])
    model = _fit(penalty, train, valid)
    logit_B = model.decision_function(test.one_hot()).astype(np.float32)
    return HashedBaselineResult(logit_B, penalty, aucs[penalty], _auc(model, test))


def _fit(penalty: float, *parts: HashedRows) -> LogisticRegression:
    rows = HashedRows(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("bucket_BF", "label_B", "line_B")))
    # More threads than cores make the solver's many small vector products ten times slower.
    with threadpool_limits(1):
        return LogisticRegression(C=1 / penalty, max_iter=_MAX_ITERATIONS).fit(rows.one_hot(), rows.label_B)


def _auc(model: LogisticRegression, rows: HashedRows) -> float:
    scores = model.decision_function(rows.one_hot())
    return ScoreCounts.of(scores, rows.label_B).totals().evaluation(()).auc


def _buckets(fields: list[bytes]) -> list[int] | None:
    """Return the buckets of a row, None where a number is none. Counts above 2 share one by half octaves."""
    try:
        numbers = [_count_bucket(int(value)) if value else value for value in fields[:_NUM_DENSE]]
    except ValueError:
        return None
    values = [*numbers, *fields[_NUM_DENSE:]]
    return [zlib.crc32(b"%d=%b" % (place, value)) % _NUM_BUCKETS for place, value in enumerate(values)]


def _count_bucket(count: int) -> bytes:
    if count <= 2:
        return b"%d" % count
    # Half octaves in integers: the square of the count lies between two powers of two.
    return b"%d" % ((count * count).bit_length() + 2)
