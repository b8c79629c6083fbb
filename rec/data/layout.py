"""What the loader takes from a feature table's schema, and what a file must hold for it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rec.core.errors import LoaderError, SchemaDriftError
from rec.core.schema import Column, FeatureSchema

_ARROW = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "list<int32>": pa.list_(pa.int32()),
    "list<int64>": pa.list_(pa.int64()),
}
_DENSE, _SPARSE, _LABEL = ("float32",), ("int32", "int64", "list<int32>", "list<int64>"), ("int32", "float32")


def is_list(column: Column) -> bool:
    return column.dtype.startswith("list<")


@dataclass(frozen=True)
class Layout:
    """Columns of a batch, in schema order. Raises LoaderError where the schema is not that of an encoded table."""

    label: Column
    dense: tuple[Column, ...]
    sparse: tuple[Column, ...]
    row_key: Column | None

    @classmethod
    def of(cls, schema: FeatureSchema, *, with_row_key: bool) -> "Layout":
        keys = [c for c in schema.columns if c.role == "row_key"]
        if with_row_key and not keys:
            keys = [Column(name="row_key", role="row_key", dtype="int64")]
        return cls(schema.label, schema.dense, schema.sparse, keys[0] if with_row_key else None)

    def __post_init__(self) -> None:
        for columns, dtypes in ((self.dense, _DENSE), (self.sparse, _SPARSE), ((self.label,), _LABEL)):
            for column in columns:
                if column.dtype not in dtypes:
                    raise LoaderError(
                        f"column {column.name!r} is {column.dtype}, a {column.role} column to load is "
                        f"{' or '.join(dtypes)}; load the table that write_features returned"
                    )
        for column in self.sparse:
            if not column.num_embeddings:
                raise LoaderError(
                    f"column {column.name!r}: num_embeddings = {column.num_embeddings}, so no id of it can be checked; "
                    "load the table that write_features returned"
                )

    @property
    def columns(self) -> tuple[Column, ...]:
        extra = (self.row_key,) if self.row_key else ()
        return (self.label, *self.dense, *self.sparse, *extra)

    @property
    def flat(self) -> list[int]:
        """Positions among the sparse columns of those with exactly one id a row."""
        return [k for k, column in enumerate(self.sparse) if not is_list(column)]

    @property
    def lists(self) -> list[int]:
        """Positions among the sparse columns of those with any number of ids a row."""
        return [k for k, column in enumerate(self.sparse) if is_list(column)]

    @property
    def id_dtype(self) -> np.dtype:
        """The type in which the single ids of all columns fit."""
        return np.dtype(np.int64 if any(c.dtype == "int64" for c in self.sparse) else np.int32)

    def missing_from(self, day: int | None) -> frozenset[str]:
        """Return the names of the features that did not exist on ``day`` yet."""
        features = (*self.dense, *self.sparse)
        return frozenset(c.name for c in features if c.first_day is not None and day is not None and day < c.first_day)

    def check_file(self, file_schema: pa.Schema, path: str, missing: frozenset[str]) -> None:
        """Raise SchemaDriftError where a file lacks a column or holds it as another type."""
        for column in self.columns:
            if column.name in missing:
                continue
            if column.name not in file_schema.names:
                raise SchemaDriftError(
                    f"{path}: column {column.name!r} is not in the file; write its day again, "
                    "or set the column's first_day to the first day that has it"
                )
            found = file_schema.field(column.name).type
            if not found.equals(_ARROW[column.dtype]) and not _same_list(found, _ARROW[column.dtype]):
                raise SchemaDriftError(
                    f"{path}: column {column.name!r} is {found}, the table's schema says {column.dtype}; "
                    "write its day again with the table's state"
                )


def _same_list(found: pa.DataType, asked: pa.DataType) -> bool:
    """Compare lists by element type alone: writers differ in the name and nullability they give the element."""
    return pa.types.is_list(found) and pa.types.is_list(asked) and found.value_type.equals(asked.value_type)
