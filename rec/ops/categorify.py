"""Turn a categorical value into an id: see rec.core.ids for what each id means."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rec.core.errors import ConfigError
from rec.core.ids import MISSING
from rec.core.keys import parse_keys
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.ops.admission import admit_values
from rec.ops.counting import CountStatistics, count_rows, observed_ranges
from rec.ops.entries import entries_frame, summarize, with_arrays
from rec.ops.lookup import broadcast_heads, encode
from rec.ops.op import Arrays, Columns, FittedOp, Kind, State, Statistics, Takes, text_literal
from rec.ops.vocabulary import NumberKeys, VocabularyState, load_vocabulary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INT32_LARGEST, _INT64_LARGEST = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True)
class Categorify(FittedOp):
    """Give an id to each value seen at least ``freq_threshold`` times in the fitted days, at most ``max_size`` values.

    ``broadcast_max_values`` says up to which size a column's vocabulary is collected, and reaches every task with the
    query or by a broadcast join; it changes how ids are looked up, never which.
    """

    freq_threshold: int = 1
    max_size: int | None = None
    broadcast_max_values: int = 1_000_000

    takes: ClassVar[Takes] = "sparse"
    kind: ClassVar[Kind] = "lookup"
    fills_missing: ClassVar[bool] = True
    statistics_table: ClassVar[Literal["counts", "statistics"]] = "counts"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {},
        {"freq_threshold": 2},
        {"max_size": 2},
        {"broadcast_max_values": 1},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("freq_threshold", 1), ("max_size", 0), ("broadcast_max_values", 0)):
            value = getattr(self, name)
            # Above, it is no number of Spark's.
            if value is not None and not least <= value <= _INT64_LARGEST:
                raise ConfigError(
                    f"categorify: {name} = {value!r}; give a whole number of at least {least}, below 2^63"
                )

    def canonical(self) -> Any:
        return [self.name(), {"freq_threshold": self.freq_threshold, "max_size": self.max_size}]

    @staticmethod
    def count(df: "DataFrame", columns: Columns) -> "DataFrame":
        return count_rows(df, columns, observed_ranges(df, columns))

    @staticmethod
    def read(rows: "DataFrame", columns: Columns) -> CountStatistics:
        named = rows.where(f"`column` IN ({', '.join(text_literal(c.name) for c in columns)})")
        return CountStatistics(named.select("day", "column", "key", "value", "count"), columns)

    def grow(self, statistics: Statistics, known: "DataFrame | None") -> "DataFrame":
        """Return the vocabulary that follows from statistics: every known entry with its id, then what is admitted."""
        assert isinstance(statistics, CountStatistics)
        return admit_values(statistics.frame, known, statistics.columns, self.freq_threshold, self.max_size)

    def admit(self, statistics: Statistics, previous: State | None = None) -> VocabularyState:
        assert isinstance(statistics, CountStatistics)
        assert previous is None or isinstance(previous, VocabularyState)
        known = entries_frame(statistics.frame.sparkSession, previous) if previous else None
        entries = self.grow(statistics, known)
        return with_arrays(summarize(entries, statistics.columns), entries, [c.name for c in statistics.columns])

    def transform(self, df: "DataFrame", columns: Columns, state: State) -> "DataFrame":
        assert isinstance(state, VocabularyState)
        sizes = {c.name: state.columns[c.name].num_values for c in columns}
        types = {c.name: self._described(c, state).dtype for c in columns}
        limits = broadcast_heads(sizes, self.broadcast_max_values)
        heads = {c: limits[c.name] for c in columns}
        arrays = {} if _is_on_gpu(df) else {c.name: state.columns[c.name].keys for c in columns}
        by_slots = {n: keys for n, keys in arrays.items() if limits[n] is None and isinstance(keys, NumberKeys)}
        return encode(df, types, partial(entries_frame, df.sparkSession, state), heads, by_slots)

    def replay(self, arrays: Arrays, columns: Columns, state: State) -> Arrays:
        assert isinstance(state, VocabularyState)
        encoded = {}
        for column in columns:
            keys_B, missing_B = _keys(arrays[column.name], column)
            ids_B = state.look_up(column.name, keys_B)
            ids_B[missing_B] = MISSING
            encoded[column.name] = Values.present(ids_B.astype(_dtype(state.columns[column.name].num_embeddings)))
        return {**arrays, **encoded}

    def describe(self, schema: FeatureSchema, columns: Columns, state: State) -> FeatureSchema:
        assert isinstance(state, VocabularyState)
        return schema.replace(*[self._described(c, state) for c in columns])

    def load_state(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> VocabularyState:
        return load_vocabulary(content, arrays)

    def _described(self, column: Column, state: VocabularyState) -> Column:
        size = state.columns[column.name].num_embeddings
        return column.model_copy(update={"dtype": _dtype(size), "key": None, "num_embeddings": size})


def _is_on_gpu(df: "DataFrame") -> bool:
    """Whether RAPIDS runs the frame: its joins on longs beat a look-up in arrays there."""
    return "com.nvidia.spark" in (df.sparkSession.conf.get("spark.plugins", "") or "")


def _dtype(num_embeddings: int) -> str:
    return "int32" if num_embeddings <= _INT32_LARGEST else "int64"


def _keys(values: Values, column: Column) -> tuple[np.ndarray, np.ndarray]:
    assert column.key is not None, column
    if values.data_B.dtype.kind in "iu":
        return values.data_B.astype(np.int64), values.missing_B
    keys_B, empty_B = parse_keys(values.data_B, column.key, column.name)
    return keys_B, values.missing_B | empty_B
