"""Raw column values in NumPy, with what is missing beside them: what an operator replays on."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Values:
    """``data_B`` (int64, float64, float32, int32, or object holding bytes) and ``missing_B`` (bool), equally long.

    ``data_B`` of a missing row is 0 or b"" and means nothing.
    """

    data_B: np.ndarray
    missing_B: np.ndarray

    def __post_init__(self) -> None:
        assert len(self.data_B) == len(self.missing_B), (len(self.data_B), len(self.missing_B))

    @classmethod
    def present(cls, data_B: np.ndarray) -> "Values":
        return cls(data_B, np.zeros(len(data_B), bool))
