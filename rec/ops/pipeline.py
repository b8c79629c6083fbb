"""Chains together, and what a fit made of them: one transform for Spark and for NumPy, stored as JSON and arrays."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rec.core.errors import BundleError, ConfigError, SchemaDriftError
from rec.core.manifest import canonical_json, sha256_json, write_atomic
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.ops.chain import Chain, Step
from rec.ops.dense import FLOATS, INTEGERS, as_float32, to_float32
from rec.ops.op import Arrays, NoState, State, quoted
from rec.ops.registry import make_op

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

States = tuple[tuple[State, ...], ...]
_CONTENT = "pipeline.json"


class Pipeline:
    """Chains over distinct columns. Columns no chain names are not features."""

    def __init__(self, *chains: Chain):
        if not chains:
            raise ConfigError("pipeline: no chains; give at least one, such as schema.sparse >> Categorify()")
        self.chains = chains
        names = [name for chain in chains for name in chain.names]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ConfigError(f"pipeline: column {twice[0]!r} is in {names.count(twice[0])} places; leave it in one")
        for chain in chains:
            _check_features(chain)

    def canonical(self) -> Any:
        return [chain.canonical() for chain in self.chains]

    def state_id(self, states: States) -> str:
        """Return the sha256 of the operators and of their states' canonical form."""
        return sha256_json({"pipeline": self.canonical(), "states": [[s.canonical() for s in row] for row in states]})

    def select(self, schema: FeatureSchema) -> FeatureSchema:
        """Return the raw schema without the features no chain names. Raises SchemaDriftError where it differs."""
        wanted = {c.name: c for chain in self.chains for c in chain.columns}
        for name, column in wanted.items():
            if _identity(schema[name]) != _identity(column):
                raise SchemaDriftError(
                    f"column {name!r}: the pipeline was made for {column}, the data has {schema[name]}; fit it again"
                )
        kept = [c for c in schema.columns if c.role not in ("dense", "sparse") or c.name in wanted]
        return FeatureSchema(columns=tuple(kept))

    def describe(self, schema: FeatureSchema, states: States) -> FeatureSchema:
        """Return the encoded schema: dense float32, sparse ids below ``num_embeddings``."""
        schema = self.select(schema)
        for chain, row in zip(self.chains, states):
            schema = chain.describe(schema, row)
        return schema.replace(*[c.model_copy(update={"dtype": "float32"}) for c in schema.dense])

    def transform(self, df: "DataFrame", schema: FeatureSchema, states: States) -> "DataFrame":
        """Return the frame with features encoded, columns no chain names dropped, all others kept in place."""
        kept = self.select(schema)
        dropped = set(schema.names) - set(kept.names)
        df = df.selectExpr(*[quoted(name) for name in df.columns if name not in dropped])
        described = kept
        for chain, row in zip(self.chains, states):
            df = chain.transform(df, kept, row)
            described = chain.describe(described, row)
        dense = {c.name: f"{as_float32(c)} AS {quoted(c.name)}" for c in described.dense}
        return df.selectExpr(*[dense.get(name, quoted(name)) for name in df.columns])

    def steps(self, schema: FeatureSchema, states: States) -> list[Step]:
        """Return every operator with its columns and state, in an order in which they can be replayed."""
        kept = self.select(schema)
        return [step for chain, row in zip(self.chains, states) for step in chain.steps(kept, row)]


def _identity(column: Column) -> tuple:
    return column.name, column.role, column.dtype, column.key


def _check_features(chain: Chain) -> None:
    for column in chain.columns:
        if column.role not in ("dense", "sparse"):
            raise ConfigError(
                f"column {column.name!r} has role {column.role!r}; only dense and sparse ones are features"
            )
    _check_values(chain)
    if not any(op.fills_missing for op in chain.ops):
        raise ConfigError(
            f"columns {_named(chain.names)}: can still be missing after {' >> '.join(op.name() for op in chain.ops)}; "
            f"add fill_missing"
        )
    fitted = [op.name() for op in chain.ops if op.is_fitted]
    if len(fitted) > 1:
        raise ConfigError(f"columns {_named(chain.names)}: {' and '.join(fitted)} are both fitted; leave one of them")
    # Arguments that do not fit a column's dtype: what is no lookup describes itself before any fit.
    unfitted = list(takewhile(lambda op: op.kind != "lookup", chain.ops))
    chain.describe(FeatureSchema(columns=chain.columns), [NoState()] * len(unfitted))


def _check_values(chain: Chain) -> None:
    """Raise ConfigError where an operator would not get what it takes: numbers, or values that have a key."""
    for column in chain.columns:
        if column.role == "dense" and column.dtype not in (*INTEGERS, *FLOATS):
            raise ConfigError(f"column {column.name!r} is dense and {column.dtype}; give it a dtype of numbers")
        if column.role == "sparse" and column.key is None:
            raise ConfigError(f"column {column.name!r} is sparse without a key; declare it hex32, int64 or string")
    lookup = None
    for op in chain.ops:
        others = [c for c in chain.columns if c.role != op.takes]
        if others:
            remedy = "leave it out" if op.takes == "dense" else "declare them so, or leave it out"
            raise ConfigError(
                f"columns {_named([c.name for c in others])}: {others[0].role}, but {op.name()} takes {op.takes} ones; "
                f"{remedy}"
            )
        if lookup:
            raise ConfigError(
                f"columns {_named(chain.names)}: ids after {lookup}, but {op.name()} takes {op.takes} values; "
                "leave one of them out"
            )
        lookup = op.name() if op.kind == "lookup" else None
    if lookup is None and chain.columns[0].role == "sparse":
        raise ConfigError(f"columns {_named(chain.names)}: sparse, but no id comes of them; end with categorify")


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@dataclass(frozen=True)
class CountedDay:
    """An attempt at a day in the tables of counts and statistics; ``input_digest`` is of what was counted."""

    attempt: int
    input_digest: str


@dataclass(frozen=True, kw_only=True)
class FittedPipeline:
    """``schema`` is the raw one. ``counted`` says which attempt of each day the fit counted."""

    root: str
    schema: FeatureSchema
    pipeline: Pipeline
    states: States
    days: tuple[int, ...]
    state_id: str
    counted: dict[int, CountedDay] = field(default_factory=dict)

    @cached_property
    def encoded_schema(self) -> FeatureSchema:
        """Return label, dense float32 and sparse columns with ``num_embeddings``, in table order."""
        return self.pipeline.describe(self.schema, self.states)

    def transform(self, df: "DataFrame") -> "DataFrame":
        return self.pipeline.transform(df, self.schema, self.states)

    def replay(self, raw: Arrays) -> Arrays:
        """Encode raw columns in NumPy: {name: Values} of dense numbers and of object arrays of bytes, to float32 and
        int64 ids in schema order.

        Raises InputError naming column and value where a sparse value has no key.
        """
        kept, steps = self._replayed
        arrays = {c.name: raw[c.name] for c in (*kept.dense, *kept.sparse)}
        for op, columns, state in steps:
            arrays = op.replay(arrays, columns, state)
        dense = {c.name: Values.present(to_float32(arrays[c.name].data_B)) for c in kept.dense}
        return {**dense, **{c.name: Values.present(arrays[c.name].data_B.astype(np.int64)) for c in kept.sparse}}

    @cached_property
    def _replayed(self) -> tuple[FeatureSchema, list[Step]]:
        return self.pipeline.select(self.schema), self.pipeline.steps(self.schema, self.states)

    def save(self, folder: str | Path) -> None:
        """Write the folder; its JSON comes last, so that a folder without it was never finished."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for place, row in enumerate(self.states):
            for step, state in enumerate(row):
                for part, array in state.arrays().items():
                    _write_array(folder / f"{place}.{step}.{part}.npy", array)
        write_atomic(folder / _CONTENT, canonical_json(self._to_json()))

    @classmethod
    def load(cls, folder: str | Path) -> "FittedPipeline":
        """Read a saved folder, arrays memory-mapped. Raises BundleError where it is not whole or not what it says."""
        folder = Path(folder)
        if not (folder / _CONTENT).is_file():
            raise BundleError(f"{folder}: no {_CONTENT}; give the folder of a fitted pipeline")
        content = json.loads((folder / _CONTENT).read_text(encoding="utf-8"))
        schema = FeatureSchema.model_validate(content["schema"])
        pipeline = _load_pipeline(folder, content["chains"], schema)
        states = tuple(
            tuple(_load_state(folder, (place, step), op, stored["states"][step]) for step, op in enumerate(chain.ops))
            for place, (chain, stored) in enumerate(zip(pipeline.chains, content["chains"]))
        )
        fitted = cls(
            root=content["root"],
            schema=schema,
            pipeline=pipeline,
            states=states,
            days=tuple(content["days"]),
            state_id=content["state_id"],
            counted={int(day): CountedDay(**stored) for day, stored in content["counted"].items()},
        )
        found = fitted.pipeline.state_id(states)
        if found != fitted.state_id:
            raise BundleError(f"{folder}: state_id is {fitted.state_id}, its content gives {found}; restore the folder")
        return fitted

    def _to_json(self) -> dict[str, Any]:
        chains = [
            {
                "columns": chain.names,
                "ops": [[op.name(), op.arguments()] for op in chain.ops],
                "states": [state.to_json() for state in row],
            }
            for chain, row in zip(self.pipeline.chains, self.states)
        ]
        return {
            "root": self.root,
            "schema": self.schema.model_dump(mode="json"),
            "chains": chains,
            "days": list(self.days),
            "state_id": self.state_id,
            "counted": {str(day): asdict(counted) for day, counted in self.counted.items()},
        }


def _load_pipeline(folder: Path, chains: list[dict[str, Any]], schema: FeatureSchema) -> Pipeline:
    try:
        return Pipeline(*[_load_chain(stored, schema) for stored in chains])
    except ConfigError as error:
        raise BundleError(f"{folder}: {error}, and fit it again under another root") from None


def _load_chain(stored: dict[str, Any], schema: FeatureSchema) -> Chain:
    ops = tuple(make_op(name, arguments, _CONTENT) for name, arguments in stored["ops"])
    return Chain(tuple(schema[name] for name in stored["columns"]), ops)


def _load_state(folder: Path, place: tuple[int, int], op: Any, stored: dict[str, Any]) -> State:
    prefix = f"{place[0]}.{place[1]}."
    files = {p.name[len(prefix) : -len(".npy")]: p for p in sorted(folder.glob(f"{prefix}*.npy"))}
    return op.load_state(stored, {part: _read_array(path) for part, path in files.items()})


def _write_array(path: Path, array: np.ndarray) -> None:
    # By rename: a process that maps the earlier file of this name keeps what it mapped.
    buffer = BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    write_atomic(path, buffer.getvalue())


def _read_array(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:
        # An array without elements has no bytes to map.
        return np.load(path, allow_pickle=False)
