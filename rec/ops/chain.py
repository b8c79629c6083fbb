"""Columns and the operators they go through, written ``columns >> Op >> Op``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rec.core.errors import ConfigError
from rec.core.schema import FeatureSchema
from rec.ops.op import Columns, Op, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Step = tuple[Op, Columns, State]


@dataclass(frozen=True)
class Chain:
    """Operators in order, each on what the one before it made of the same columns."""

    columns: Columns
    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError(f"chain {' >> '.join(op.name() for op in self.ops)}: no columns; name at least one")

    def __rshift__(self, op: Op) -> "Chain":
        return Chain(self.columns, (*self.ops, op))

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def canonical(self) -> Any:
        """Return the JSON value that identifies the chain: its columns as declared and its operators' arguments."""
        columns = [[c.name, c.role, c.dtype, c.key] for c in self.columns]
        return {"columns": columns, "ops": [op.canonical() for op in self.ops]}

    def steps(self, schema: FeatureSchema, states: Sequence[State]) -> list[Step]:
        """Return the first ``len(states)`` operators, each with the columns as it sees them and its state."""
        steps = []
        for op, state in zip(self.ops, states):
            columns = tuple(schema[name] for name in self.names)
            steps.append((op, columns, state))
            schema = op.describe(schema, columns, state)
        return steps

    def transform(self, df: "DataFrame", schema: FeatureSchema, states: Sequence[State]) -> "DataFrame":
        for op, columns, state in self.steps(schema, states):
            df = op.transform(df, columns, state)
        return df

    def describe(self, schema: FeatureSchema, states: Sequence[State]) -> FeatureSchema:
        """Return the schema after the first ``len(states)`` operators."""
        for op, columns, state in self.steps(schema, states):
            schema = op.describe(schema, columns, state)
        return schema
