"""Logarithm of a count."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.dense import number, numbers
from rec.ops.op import ColumnwiseOp, State, Takes


@dataclass(frozen=True)
class LogOp(ColumnwiseOp):
    """log(1 + x) in float32, negative x as 0: a count below zero has no logarithm. Missing stays missing.

    The logarithm is taken in double: the engines' doubles differ in the last place, their float32 rounding does not.
    """

    takes: ClassVar[Takes] = "dense"

    def expression(self, column: Column, state: State) -> str:
        text = f"CAST({number(column)} AS DOUBLE)"
        return f"CAST(log1p(CASE WHEN {text} < 0D THEN 0D ELSE {text} END) AS FLOAT)"

    def replay_column(self, values: Values, column: Column, state: State) -> Values:
        values = numbers(values)
        data_B = np.log1p(np.maximum(values.data_B.astype(np.float64), 0.0)).astype(np.float32)
        return Values(data_B, values.missing_B)

    def describe_column(self, column: Column, state: State) -> Column:
        return column.model_copy(update={"dtype": "float32"})
