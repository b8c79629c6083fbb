"""The ``features`` section of a recipe: which columns go through which operators."""

import fnmatch
from typing import Any

from pydantic import RootModel, field_validator

from rec.core.config import Config
from rec.core.errors import ConfigError
from rec.core.schema import FeatureSchema
from rec.ops.chain import Chain
from rec.ops.op import Op
from rec.ops.pipeline import Pipeline
from rec.ops.registry import make_op

OpConfig = str | dict[str, dict[str, Any] | None]


class ChainConfig(Config):
    """``columns`` are names or patterns such as I*; ``ops`` are names, or a name with its arguments."""

    columns: str | list[str]
    ops: list[OpConfig]

    @field_validator("ops", mode="after")
    @classmethod
    def _known(cls, ops: list[OpConfig]) -> list[OpConfig]:
        if not ops:
            raise ConfigError("no operator; name at least one")
        for op in ops:
            _make(op)
        return ops


class FeaturesConfig(RootModel[dict[str, ChainConfig]]):
    """Chains by a name of the user's choice."""

    model_config = {"frozen": True}


def build_pipeline(config: FeaturesConfig, schema: FeatureSchema) -> Pipeline:
    """Return the pipeline of a recipe over the columns of a source. Raises ConfigError where a pattern fits none."""
    return Pipeline(*[_chain(chain, schema, f"features.{name}") for name, chain in config.root.items()])


def _chain(config: ChainConfig, schema: FeatureSchema, where: str) -> Chain:
    patterns = [config.columns] if isinstance(config.columns, str) else config.columns
    features = (*schema.dense, *schema.sparse)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(c.name, pattern) for c in features):
            raise ConfigError(f"{where}.columns: {pattern!r} fits none of {[c.name for c in features]}; correct it")
    columns = tuple(c for c in features if any(fnmatch.fnmatchcase(c.name, p) for p in patterns))
    return Chain(columns, tuple(_make(op) for op in config.ops))


def _make(op: OpConfig) -> Op:
    if isinstance(op, str):
        return make_op(op, {}, "ops")
    if len(op) != 1:
        raise ConfigError(f"ops: {op!r} names {len(op)} operators in one entry; give each its own")
    [(name, arguments)] = op.items()
    return make_op(name, arguments or {}, "ops")
