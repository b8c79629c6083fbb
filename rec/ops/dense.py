"""Numbers as every dense operator sees them, in SQL and in NumPy.

NaN and the infinities are missing. No operator's result is NaN or infinite for a finite input.
"""

import numpy as np

from rec.core.errors import ConfigError
from rec.core.schema import Column
from rec.core.values import Values
from rec.ops.op import quoted

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
SQL_TYPES = {"int32": "INT", "int64": "BIGINT", "float32": "FLOAT", "float64": "DOUBLE", "string": "STRING"}
_LARGEST_DOUBLE = "1.7976931348623157E308D"
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
_LARGEST = {"float32": _LARGEST_FLOAT32, "float64": float(np.finfo(np.float64).max)}
_INT64_BOUND = 2.0**63


def number(column: Column) -> str:
    """Return the column as SQL text, NaN and infinity as NULL. Spark orders NaN above every number."""
    name = quoted(column.name)
    return f"CASE WHEN abs({name}) <= {_LARGEST_DOUBLE} THEN {name} END" if column.dtype in FLOATS else name


def numbers(values: Values) -> Values:
    """Return the values with NaN and infinity as missing, a missing row's number 0."""
    data_B = values.data_B
    missing_B = values.missing_B | ~np.isfinite(data_B) if data_B.dtype.kind == "f" else values.missing_B
    return Values(np.where(missing_B, data_B.dtype.type(0), data_B), missing_B)


def literal(value: float, column: Column, argument: str) -> str:
    """Return a number as SQL text in the column's own type. Raises ConfigError where the type cannot hold it."""
    if column.dtype in INTEGERS:
        bound = 1 << (31 if column.dtype == "int32" else 63)
        if not -bound <= value < bound or value != int(value):
            raise ConfigError(
                f"column {column.name!r} is {column.dtype} and {argument} = {value!r}; "
                f"give a whole number from {-bound} to {bound - 1}"
            )
        return f"CAST({int(value)}L AS {SQL_TYPES[column.dtype]})"
    limit = _LARGEST[column.dtype]
    if abs(value) > limit:
        raise ConfigError(
            f"column {column.name!r} is {column.dtype} and {argument} = {value!r}; give a number within ±{limit!r}"
        )
    return f"CAST({float(value)!r}D AS {SQL_TYPES[column.dtype]})"


def as_float32(column: Column) -> str:
    """Return SQL text of a filled column as float32; doubles beyond its range become its largest number."""
    name = quoted(column.name)
    if column.dtype == "float64":
        name = f"greatest(least({name}, {_LARGEST_FLOAT32!r}D), {-_LARGEST_FLOAT32!r}D)"
    return f"CAST({name} AS FLOAT)"


def to_float32(data_B: np.ndarray) -> np.ndarray:
    """Return what ``as_float32`` gives."""
    if data_B.dtype == np.float64:
        data_B = np.clip(data_B, -_LARGEST_FLOAT32, _LARGEST_FLOAT32)
    return data_B.astype(np.float32)


def bounded_double(column: Column) -> str:
    """Return the column as SQL text of a double within ±2^63: its square's sums stay exact."""
    x = f"CAST({number(column)} AS DOUBLE)"
    # greatest and least skip NULL and would return the bound.
    bound = f"{_INT64_BOUND!r}D"
    return f"CASE WHEN {x} > {bound} THEN {bound} WHEN {x} < -{bound} THEN -{bound} ELSE {x} END"


def to_bounded_double(values: Values) -> Values:
    """Return what ``bounded_double`` gives; a missing row's number is 0."""
    values = numbers(values)
    return Values(np.clip(values.data_B.astype(np.float64), -_INT64_BOUND, _INT64_BOUND), values.missing_B)
