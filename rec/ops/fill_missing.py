"""Put a number where none was given."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.dense import literal, number, numbers
from rec.ops.op import ColumnwiseOp, State, Takes


@dataclass(frozen=True)
class FillMissing(ColumnwiseOp):
    """Replace missing, NaN and infinite by ``value``."""

    value: float = 0

    takes: ClassVar[Takes] = "dense"
    fills_missing: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"value": 7}, {"value": -1})

    def expression(self, column: Column, state: State) -> str:
        return f"coalesce({number(column)}, {literal(self.value, column, 'fill_missing.value')})"

    def replay_column(self, values: Values, column: Column, state: State) -> Values:
        values = numbers(values)
        return Values.present(np.where(values.missing_B, values.data_B.dtype.type(self.value), values.data_B))

    def describe_column(self, column: Column, state: State) -> Column:
        literal(self.value, column, "fill_missing.value")
        return column
