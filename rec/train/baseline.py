"""Logistic regression: what a model must beat, on the same rows in the same encoding.

Shapes: B rows, D dense features, N ids of a batch, W weights, one for each id of each sparse column.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from rec.core.config import Config
from rec.core.tables import Days, Evaluation, FeatureTable
from rec.data.batch import Batch
from rec.data.config import LoaderConfig
from rec.data.loader import make_loader
from rec.train.metrics import ScoreCounts

logger = logging.getLogger(__name__)
_EPS = 1e-8


class LogisticRegressionConfig(Config):
    """Ridge-penalised logistic regression by Adagrad. The pair of penalty and epoch that is best on valid is kept; a
    penalty's first epoch without a gain there is its last."""

    penalties: tuple[float, ...] = (100.0, 300.0)
    max_epochs: int = 4
    learning_rate: float = 0.1


@dataclass(frozen=True)
class LogisticRegressionResult:
    """Scores of the test rows by row key, and the figures of the chosen fit."""

    row_key_B: np.ndarray
    logit_B: np.ndarray
    label_B: np.ndarray
    penalty: float
    num_epochs: int
    valid_auc: float
    test: Evaluation


def logistic_regression(
    table: FeatureTable, days: Days, loader_config: LoaderConfig, config: LogisticRegressionConfig | None = None
) -> LogisticRegressionResult:
    """Fit on the train days, choose on the valid days, score the test days.

    ``loader_config`` is the model's own, so that both see the same rows in the same order.
    """
    config = config or LogisticRegressionConfig()
    best: tuple[float, float, int, _Weights] | None = None
    for penalty in config.penalties:
        train = make_loader(table, days.train, config=loader_config)
        weights = _Weights(table, penalty=penalty / train.counts.num_used, learning_rate=config.learning_rate)
        highest_auc = 0.0
        for epoch in range(1, config.max_epochs + 1):
            for batch in train:
                weights.step(batch)
            valid_auc = _evaluate(weights, table, days.valid, loader_config)[0].auc
            logger.info("logistic regression: penalty %g, epoch %d, valid AUC %.4f", penalty, epoch, valid_auc)
            if best is None or valid_auc > best[0]:
                best = valid_auc, penalty, epoch, weights.copy()
            if valid_auc <= highest_auc:
                break
            highest_auc = valid_auc
    assert best is not None
    valid_auc, penalty, num_epochs, weights = best
    test, row_key_B, logit_B, label_B = _evaluate(weights, table, days.test, loader_config)
    return LogisticRegressionResult(row_key_B, logit_B, label_B, penalty, num_epochs, valid_auc, test)


class _Weights:
    """Weights of dense features, bias and ids with their Adagrad state; gradients in closed form."""

    def __init__(self, table: FeatureTable, *, penalty: float, learning_rate: float):
        sizes = [column.num_embeddings or 0 for column in table.schema.sparse]
        self._first_F = torch.tensor([0, *accumulate(sizes)][:-1])
        self._penalty, self._learning_rate = penalty, learning_rate
        self._dense = torch.zeros(len(table.schema.dense) + 1)
        self._sparse_W = torch.zeros(sum(sizes))
        self._dense_squares, self._sparse_squares_W = torch.zeros_like(self._dense), torch.zeros_like(self._sparse_W)

    def copy(self) -> "_Weights":
        other = object.__new__(_Weights)
        other.__dict__ = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in self.__dict__.items()}
        return other

    def logits(self, batch: Batch) -> torch.Tensor:
        """Return logits_B."""
        return self._logits(batch, *self._places(batch))

    def step(self, batch: Batch) -> None:
        index_N, row_N = self._places(batch)
        error_B = (torch.sigmoid(self._logits(batch, index_N, row_N)) - batch.label_B) / len(batch.label_B)
        dense = torch.cat([batch.dense_BD.T @ error_B, error_B.sum()[None]])
        # Several times as fast as index_add_ on one thread.
        sparse_W = torch.bincount(index_N, error_B[row_N], minlength=len(self._sparse_W))
        sparse_W.add_(self._sparse_W, alpha=self._penalty)
        self._update(self._dense, self._dense_squares, dense)
        self._update(self._sparse_W, self._sparse_squares_W, sparse_W)

    def _update(self, weight: torch.Tensor, squares: torch.Tensor, gradient: torch.Tensor) -> None:
        squares.addcmul_(gradient, gradient)
        weight.addcdiv_(gradient, squares.sqrt().add_(_EPS), value=-self._learning_rate)

    def _logits(self, batch: Batch, index_N: torch.Tensor, row_N: torch.Tensor) -> torch.Tensor:
        logit_B = torch.bincount(row_N, self._sparse_W[index_N], minlength=len(batch.label_B))
        return logit_B + batch.dense_BD @ self._dense[:-1] + self._dense[-1]

    def _places(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weight and the row of each id."""
        lengths_FB = batch.lengths_FB.long()
        num_columns, num_rows = lengths_FB.shape
        row_N = torch.arange(num_rows).repeat(num_columns).repeat_interleave(lengths_FB.flatten())
        return batch.values_N + self._first_F.repeat_interleave(lengths_FB.sum(1)), row_N


def _evaluate(
    weights: _Weights, table: FeatureTable, days: tuple[int, ...], config: LoaderConfig
) -> tuple[Evaluation, np.ndarray, np.ndarray, np.ndarray]:
    """Return the figures of some days with row keys, logits and labels."""
    parts = list(_scored(weights, table, days, config))
    row_key_B, logit_B, label_B = (np.concatenate(column) for column in zip(*parts))
    return ScoreCounts.of(logit_B, label_B).totals().evaluation(days), row_key_B, logit_B, label_B


def _scored(
    weights: _Weights, table: FeatureTable, days: tuple[int, ...], config: LoaderConfig
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for batch in make_loader(table, days, config=config, evaluation=True):
        real_B = batch.weight_B > 0
        assert batch.row_key_B is not None
        yield tuple(t[real_B].numpy() for t in (batch.row_key_B, weights.logits(batch), batch.label_B))  # type: ignore
