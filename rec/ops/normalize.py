"""Centre a number and divide by its deviation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.dense import bounded_double, to_bounded_double
from rec.ops.moments import MomentStatistics, moment_rows
from rec.ops.op import Columns, ColumnwiseOp, FittedOp, State, Statistics, Takes, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ScaleState(State):
    """(mean, population deviation) of each column."""

    scales: dict[str, tuple[float, float]]

    def canonical(self) -> Any:
        return {name: list(scale) for name, scale in self.scales.items()}

    def to_json(self) -> dict[str, Any]:
        return {"scales": self.canonical()}


@dataclass(frozen=True)
class Normalize(ColumnwiseOp, FittedOp):
    """(x − mean) / population deviation in float32; missing, and every row of a constant column, becomes 0."""

    takes: ClassVar[Takes] = "dense"
    fills_missing: ClassVar[bool] = True
    statistics_table: ClassVar[Literal["counts", "statistics"]] = "statistics"

    @staticmethod
    def count(df: "DataFrame", columns: Columns) -> "DataFrame":
        return moment_rows(df, columns)

    @staticmethod
    def read(rows: "DataFrame", columns: Columns) -> MomentStatistics:
        named = rows.where(f"`column` IN ({', '.join(text_literal(c.name) for c in columns)})")
        return MomentStatistics.from_rows(named.select("day", "column", "name", "value").collect())

    def admit(self, statistics: Statistics, previous: State | None = None) -> ScaleState:
        """Return the scales of the statistics, or the previous ones: a trained model keeps the scale it learnt with."""
        if previous is not None:
            assert isinstance(previous, ScaleState)
            return previous
        assert isinstance(statistics, MomentStatistics)
        names = sorted({name for _, name in statistics.by_day})
        totals = {name: statistics.total(name) for name in names}
        return ScaleState({name: (total.mean, total.deviation) for name, total in totals.items()})

    def expression(self, column: Column, state: State) -> str:
        mean, deviation = self._scale(column, state)
        if deviation == 0:
            return "CAST(0 AS FLOAT)"
        return f"coalesce(CAST((({bounded_double(column)}) - ({mean!r}D)) / {deviation!r}D AS FLOAT), CAST(0 AS FLOAT))"

    def replay_column(self, values: Values, column: Column, state: State) -> Values:
        mean, deviation = self._scale(column, state)
        values = to_bounded_double(values)
        if deviation == 0:
            return Values.present(np.zeros(len(values.data_B), np.float32))
        data_B = ((values.data_B - mean) / deviation).astype(np.float32)
        return Values.present(np.where(values.missing_B, np.float32(0), data_B))

    def describe_column(self, column: Column, state: State) -> Column:
        return column.model_copy(update={"dtype": "float32"})

    def load_state(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> ScaleState:
        return ScaleState({name: (mean, deviation) for name, (mean, deviation) in content["scales"].items()})

    def _scale(self, column: Column, state: State) -> tuple[float, float]:
        assert isinstance(state, ScaleState)
        # A column no fitted row was seen of has nothing to be scaled by.
        return state.scales.get(column.name, (0.0, 0.0))
