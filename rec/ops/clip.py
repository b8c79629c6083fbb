"""Hold a number within bounds."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rec.core.errors import ConfigError
from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.dense import literal, number, numbers
from rec.ops.op import ColumnwiseOp, State, Takes


@dataclass(frozen=True)
class Clip(ColumnwiseOp):
    """Raise what is below ``min`` to it and lower what is above ``max`` to it; missing stays missing."""

    min: float | None = None
    max: float | None = None

    takes: ClassVar[Takes] = "dense"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"min": 0}, {"max": 3}, {"min": -2, "max": 1000})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min is None and self.max is None:
            raise ConfigError("clip: neither min nor max is given; give at least one")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ConfigError(f"clip: min = {self.min!r} is above max = {self.max!r}; swap them")

    def expression(self, column: Column, state: State) -> str:
        text = number(column)
        # greatest and least skip NULL and would return the bound.
        if self.min is not None:
            bound = literal(self.min, column, "clip.min")
            text = f"CASE WHEN ({text}) < {bound} THEN {bound} ELSE ({text}) END"
        if self.max is not None:
            bound = literal(self.max, column, "clip.max")
            text = f"CASE WHEN ({text}) > {bound} THEN {bound} ELSE ({text}) END"
        return text

    def replay_column(self, values: Values, column: Column, state: State) -> Values:
        values = numbers(values)
        dtype = values.data_B.dtype.type
        low = None if self.min is None else dtype(self.min)
        high = None if self.max is None else dtype(self.max)
        return Values(np.where(values.missing_B, dtype(0), np.clip(values.data_B, low, high)), values.missing_B)

    def describe_column(self, column: Column, state: State) -> Column:
        for argument, bound in (("clip.min", self.min), ("clip.max", self.max)):
            if bound is not None:
                literal(bound, column, argument)
        return column
