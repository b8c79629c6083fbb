"""Is what is served what was trained? Row by row: encoded rows, scores in process, and the trainer's logits.

Shapes: B rows, D dense features, F sparse features. All arrays of a comparison hold the same rows in the same order;
whoever calls joins them, by ``row_key``.
"""

from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from rec.bundle.bundle import Bundle, Scores
from rec.bundle.layout import LOGIT_TOLERANCE
from rec.core.errors import ServingError
from rec.core.values import Values
from rec.serve.client import ServedScores


@dataclass(frozen=True, kw_only=True)
class OfflineRows:
    """The same rows as the feature table holds them, as the bundle scores them here, and as the trainer did."""

    dense_BD: np.ndarray
    ids_BF: np.ndarray
    scores: Scores
    trainer_logit_B: np.ndarray


class ParityReport(BaseModel):
    """Counts of differences and their largest. ``dense_last_place`` values differ by one unit in the last place, which
    is allowed, ``dense_different`` by more. A score's difference to the trainer is divided by 1 + |logit|."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_rows: int
    ids_different: int
    dense_last_place: int
    dense_different: int
    scores_different: int
    max_score_delta: float
    trainer_different: int
    max_trainer_delta: float
    max_trainer_relative: float

    @property
    def holds(self) -> bool:
        return not (self.ids_different or self.dense_different or self.scores_different or self.trainer_different)

    @property
    def summary(self) -> str:
        """One line for a terminal."""
        return (
            f"{self.num_rows:,} rows: {self.ids_different:,} ids differ, {self.dense_different:,} dense values differ "
            f"({self.dense_last_place:,} by one unit in the last place), {self.scores_different:,} scores are not "
            f"bit-equal, {self.trainer_different:,} leave the trainer's logits (largest "
            f"|Δ| = {self.max_trainer_relative:.2e} of 1 + |logit|)"
        )


def compare(served: ServedScores, offline: OfflineRows) -> ParityReport:
    """Count the differences between served and offline rows. Raises ServingError where encoded rows were not asked for
    or the numbers of rows differ."""
    given = {"encoded_dense": served.dense_BD, "encoded_ids": served.ids_BF}
    for name, expected in (("encoded_dense", offline.dense_BD), ("encoded_ids", offline.ids_BF)):
        array = given[name]
        if array is None or array.shape != expected.shape:
            shape = "nothing" if array is None else list(array.shape)
            raise ServingError(
                f"parity: {name} is {shape}, expected {list(expected.shape)}; score the same rows with encoded=True"
            )
    dense_BD, ids_BF = given["encoded_dense"], given["encoded_ids"]
    assert dense_BD is not None
    assert ids_BF is not None
    different_BD = dense_BD.view(np.int32) != offline.dense_BD.astype(np.float32).view(np.int32)
    close_BD = np.abs(dense_BD - offline.dense_BD) <= np.spacing(np.abs(offline.dense_BD, dtype=np.float32))
    exact_B = _same_bits(served.logit_B, offline.scores.logit_B) & _same_bits(served.prob_B, offline.scores.prob_B)
    trainer_B = np.abs(served.logit_B.astype(np.float64) - offline.trainer_logit_B)
    relative_B = trainer_B / (1 + np.abs(offline.trainer_logit_B.astype(np.float64)))
    return ParityReport(
        num_rows=len(served),
        ids_different=int((ids_BF != offline.ids_BF).sum()),
        dense_last_place=int((different_BD & close_BD).sum()),
        dense_different=int((different_BD & ~close_BD).sum()),
        scores_different=int((~exact_B).sum()),
        max_score_delta=_largest(np.abs(served.logit_B - offline.scores.logit_B)),
        trainer_different=int((~(relative_B <= LOGIT_TOLERANCE)).sum()),
        max_trainer_delta=_largest(trainer_B),
        max_trainer_relative=_largest(relative_B),
    )


def score_in_process(bundle: Bundle, columns: dict[str, Values], batch_size: int) -> Scores:
    """Score raw columns here, ``batch_size`` rows a run: the runs that a client of that batch size causes."""
    num_rows = len(next(iter(columns.values())).data_B)
    slices = [slice(start, start + batch_size) for start in range(0, num_rows, batch_size)]
    parts = [
        bundle.score({n: Values(v.data_B[rows], v.missing_B[rows]) for n, v in columns.items()}) for rows in slices
    ]
    if not parts:
        return Scores(np.empty(0, np.float32), np.empty(0, np.float32))
    return Scores(np.concatenate([p.prob_B for p in parts]), np.concatenate([p.logit_B for p in parts]))


def _same_bits(given: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return given.view(np.int32) == expected.view(np.int32)


def _largest(values: np.ndarray) -> float:
    return float(values.max(initial=0.0))
