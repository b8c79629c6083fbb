"""Put the column's median where no number was given."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.buckets import BucketStatistics, bucket_rows
from rec.ops.dense import INTEGERS, literal, number, numbers
from rec.ops.op import Columns, ColumnwiseOp, FittedOp, State, Statistics, Takes, text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class MedianState(State):
    """Median of each column; 0 where no value was seen."""

    medians: dict[str, float]

    def canonical(self) -> Any:
        return self.medians

    def to_json(self) -> dict[str, Any]:
        return {"medians": self.medians}


@dataclass(frozen=True)
class FillMedian(ColumnwiseOp, FittedOp):
    """Replace missing, NaN and infinite by the median of the others: exact for integers within ±255, else at most 1 %
    nearer to 0. The smaller of the two middle values of an even number counts.
    """

    takes: ClassVar[Takes] = "dense"
    fills_missing: ClassVar[bool] = True
    statistics_table: ClassVar[Literal["counts", "statistics"]] = "statistics"

    @staticmethod
    def count(df: "DataFrame", columns: Columns) -> "DataFrame":
        return bucket_rows(df, columns)

    @staticmethod
    def read(rows: "DataFrame", columns: Columns) -> BucketStatistics:
        named = rows.where(f"`column` IN ({', '.join(text_literal(c.name) for c in columns)})")
        summed = named.groupBy("column", "name").sum("value")
        return BucketStatistics.from_rows(tuple(row) for row in summed.collect())

    def admit(self, statistics: Statistics, previous: State | None = None) -> MedianState:
        """Return the medians of the statistics, or the previous ones: a trained model keeps what it learnt with."""
        if previous is not None:
            assert isinstance(previous, MedianState)
            return previous
        assert isinstance(statistics, BucketStatistics)
        names = sorted(statistics.by_column)
        return MedianState({name: float(statistics.quantile(name, Fraction(1, 2))) for name in names})

    def expression(self, column: Column, state: State) -> str:
        return f"coalesce({number(column)}, {literal(self._median(column, state), column, 'median')})"

    def replay_column(self, values: Values, column: Column, state: State) -> Values:
        values = numbers(values)
        median = values.data_B.dtype.type(self._median(column, state))
        return Values.present(np.where(values.missing_B, median, values.data_B))

    def describe_column(self, column: Column, state: State) -> Column:
        return column

    def load_state(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> MedianState:
        return MedianState({name: float(median) for name, median in content["medians"].items()})

    @staticmethod
    def _median(column: Column, state: State) -> float:
        assert isinstance(state, MedianState)
        median = state.medians.get(column.name, 0.0)
        # An integer's bucket begins at an integer.
        assert column.dtype not in INTEGERS or median == int(median), (column, median)
        return median
