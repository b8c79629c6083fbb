"""Columns of a table and what each is for."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from rec.core.errors import SchemaDriftError
from rec.core.keys import KeyKind

Role = Literal["label", "dense", "sparse", "row_key", "day", "weight"]
DType = Literal["int32", "int64", "float32", "float64", "string", "list<int32>", "list<int64>"]


class Column(BaseModel):
    """One column. ``num_embeddings`` is set on an encoded sparse column: every id lies in [0, num_embeddings)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    role: Role
    dtype: DType
    key: KeyKind | None = None
    num_embeddings: int | None = None
    first_day: int | None = None
    provided_at_serving: bool = False


class FeatureSchema(BaseModel):
    """Columns in table order; names are unique. JSON round trip by ``model_dump_json`` / ``model_validate_json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[Column, ...]

    def model_post_init(self, _context: object) -> None:
        names = self.names
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise SchemaDriftError(f"column {twice[0]!r} appears {names.count(twice[0])} times; rename one of them")

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def dense(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.role == "dense")

    @property
    def sparse(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.role == "sparse")

    @property
    def label(self) -> Column:
        """The label column. Raises SchemaDriftError where the schema has none."""
        for column in self.columns:
            if column.role == "label":
                return column
        raise SchemaDriftError(f"no label column among {self.names}; declare one with role 'label'")

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaDriftError(f"column {name!r} is not in the schema; it has {self.names}")

    def replace(self, *changed: Column) -> "FeatureSchema":
        """Return the schema with each given column in the place of the one of its name."""
        by_name = {c.name: c for c in changed}
        return FeatureSchema(columns=tuple(by_name.get(c.name, c) for c in self.columns))
