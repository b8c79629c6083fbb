"""Raw columns of whatever holds a table: a Spark DataFrame, an Arrow table, a pandas frame, or columns by name.

Nothing of Spark, Arrow or pandas is imported here; each is told by the methods it has. Spark goes by Arrow and not by
pandas, which makes a float of every integer beside a missing one and so loses those beyond 2^53.
"""

from typing import Any

import numpy as np

from rec.core.errors import RequestError
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values

ROW_KEY = "row_key"
_EXACT_FLOAT = 2.0**53


def raw_columns(frame: Any, raw: FeatureSchema) -> tuple[dict[str, Values], np.ndarray | None]:
    """Return (columns by name, row keys or None). Raises RequestError naming column and value that do not fit."""
    wanted = [*raw.dense, *raw.sparse]
    given = list(frame) if isinstance(frame, dict) else [str(c) for c in getattr(frame, "column_names", frame.columns)]
    absent = [c.name for c in wanted if c.name not in given]
    if absent:
        raise RequestError(
            f"column {absent[0]!r} is not in the rows; expected {[c.name for c in wanted]}, given {given}"
        )
    names = [c.name for c in wanted] + [ROW_KEY] * (ROW_KEY in given)
    if hasattr(frame, "toArrow"):
        frame = frame.select(*(f"`{name}`" for name in names)).toArrow()
    columns = {c.name: _values(_items(frame, c.name), c) for c in wanted}
    keys = _items(frame, ROW_KEY) if ROW_KEY in names else None
    return columns, None if keys is None else np.asarray(keys, np.int64)


def _items(frame: Any, name: str) -> Any:
    """Return a list with None for missing, or the Values that a dict holds."""
    column = frame[name]
    if isinstance(column, Values):
        return column
    if hasattr(column, "to_pylist"):
        return column.to_pylist()
    if hasattr(column, "isna"):
        missing = column.isna().tolist()
        return [None if gone else value for value, gone in zip(column.tolist(), missing)]
    return list(column)


def _values(items: Any, column: Column) -> Values:
    if isinstance(items, Values):
        return items
    missing_B = np.fromiter((v is None for v in items), bool, len(items))
    if column.role == "sparse":
        data_B = np.empty(len(items), object)
        data_B[:] = [_bytes(v) for v in items]
        return Values(data_B, missing_B | np.fromiter((not v for v in data_B), bool, len(items)))
    dtype = np.dtype(column.dtype)
    try:
        numbers = [0 if v is None else _number(v, dtype) for v in items]
        return Values(np.array(numbers, dtype), missing_B)
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(f"column {column.name!r}: {error}; expected {column.dtype} or missing") from None


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _number(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "i" and isinstance(value, float):
        if value != int(value) or abs(value) > _EXACT_FLOAT:
            raise ValueError(f"{value!r} is not an integer that a float holds exactly")
        return int(value)
    return value
