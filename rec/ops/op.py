"""What an operator is: fit to statistics, admit to a state, then the same transform in Spark and in NumPy.

An operator never changes itself: ``fit`` and ``admit`` return what later calls are handed back. Its ``kind`` says what
a row's result depends on:

``row_local``   on the row alone
``lookup``      on the row and the state
``table``       on other rows too; there is no replay, so a model that needs one cannot be exported
"""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.ops.arguments import check_arguments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rec.ops.chain import Chain

Kind = Literal["row_local", "lookup", "table"]
Takes = Literal["dense", "sparse"]
Columns = tuple[Column, ...]
Arrays = dict[str, Values]


def quoted(name: str) -> str:
    """Return a column name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    """Return a string as SQL text."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Statistics(ABC):
    """What a fit counted. ``fit(A).merge(fit(B))`` equals ``fit(A ∪ B)``, whatever the partitioning."""

    @abstractmethod
    def merge(self, other: "Statistics") -> "Statistics":
        """Return the statistics of both inputs together."""


class NoStatistics(Statistics):
    """Of an operator that learns nothing."""

    def merge(self, other: Statistics) -> Statistics:
        return self


class State(ABC):
    """What a transform needs beyond the row. Stored as JSON and arrays, never as code."""

    @abstractmethod
    def canonical(self) -> Any:
        """Return the JSON value that identifies the state: equal states give equal values on any machine."""

    def to_json(self) -> dict[str, Any]:
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what is stored beside the JSON, one array a file."""
        return {}


class NoState(State):
    """Of an operator that learns nothing."""

    def canonical(self) -> Any:
        return None


class Op(ABC):
    """Base of every operator; subclasses are frozen dataclasses whose fields are the operator's arguments."""

    # What a column must be: a number ("dense"), or a value with a key ("sparse"). An id is neither. No default.
    takes: ClassVar[Takes]
    kind: ClassVar[Kind] = "row_local"
    # Whether the output has a value in every row, whatever the input.
    fills_missing: ClassVar[bool] = False
    # Arguments the contract test tries.
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({},)
    is_fitted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise ConfigError for an argument that does not hold; an override calls this one first."""
        check_arguments(self)

    @classmethod
    def name(cls) -> str:
        """Return the name a recipe uses: the class in snake_case without a final Op."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Op")).lower()

    def arguments(self) -> dict[str, Any]:
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def canonical(self) -> Any:
        """Return the JSON value of what decides the output: name and arguments, those of mere speed left out."""
        return [self.name(), self.arguments()]

    def fit(self, df: "DataFrame", columns: Columns) -> Statistics:
        """Return the statistics of the columns of a frame that has a ``day``."""
        return NoStatistics()

    def admit(self, statistics: Statistics, previous: State | None = None) -> State:
        """Return the state that follows from statistics; only this step may depend on an earlier state."""
        return NoState()

    @abstractmethod
    def transform(self, df: "DataFrame", columns: Columns, state: State) -> "DataFrame":
        """Return the frame with the columns replaced, all others and their order kept."""

    @abstractmethod
    def replay(self, arrays: Arrays, columns: Columns, state: State) -> Arrays:
        """Return the arrays with the columns replaced: the same values as ``transform``, in NumPy alone."""

    @abstractmethod
    def describe(self, schema: FeatureSchema, columns: Columns, state: State) -> FeatureSchema:
        """Return the schema after ``transform``, without data; of an operator that is no lookup, whatever the state.

        Raises ConfigError where an argument does not fit a column's dtype.
        """

    def load_state(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> State:
        """Return the state stored by its ``to_json`` and ``arrays``."""
        return NoState()

    def __rrshift__(self, columns: Iterable[Column]) -> "Chain":
        from rec.ops.chain import Chain

        return Chain(columns=tuple(columns), ops=(self,))


class FittedOp(Op):
    """An operator that learns: its statistics are rows by day, kept in one of two tables and read back from there."""

    is_fitted: ClassVar[bool] = True
    statistics_table: ClassVar[Literal["counts", "statistics"]]

    @staticmethod
    @abstractmethod
    def count(df: "DataFrame", columns: Columns) -> "DataFrame":
        """Return the rows (day, column, …) that the frame adds to the statistics table: sums, which merge by adding."""

    @staticmethod
    @abstractmethod
    def read(rows: "DataFrame", columns: Columns) -> Statistics:
        """Return the statistics of the columns from rows of the table, those of other columns among them."""

    def fit(self, df: "DataFrame", columns: Columns) -> Statistics:
        return self.read(self.count(df, columns), columns)


class ColumnwiseOp(Op):
    """An operator that treats each column alone: one SQL expression, one NumPy function, one dtype."""

    @abstractmethod
    def expression(self, column: Column, state: State) -> str:
        """Return the SQL text of the column's new value; a missing value is NULL."""

    @abstractmethod
    def replay_column(self, values: Values, column: Column, state: State) -> Values: ...

    @abstractmethod
    def describe_column(self, column: Column, state: State) -> Column: ...

    def transform(self, df: "DataFrame", columns: Columns, state: State) -> "DataFrame":
        changed = {c.name: f"{self.expression(c, state)} AS {quoted(c.name)}" for c in columns}
        return df.selectExpr(*[changed.get(name, quoted(name)) for name in df.columns])

    def replay(self, arrays: Arrays, columns: Columns, state: State) -> Arrays:
        return {**arrays, **{c.name: self.replay_column(arrays[c.name], c, state) for c in columns}}

    def describe(self, schema: FeatureSchema, columns: Columns, state: State) -> FeatureSchema:
        return schema.replace(*[self.describe_column(c, state) for c in columns])
