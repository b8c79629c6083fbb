"""Every operator a recipe can name. A new operator is one file and one line here; the contract test finds it."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from rec.core.errors import ConfigError
from rec.ops.categorify import Categorify
from rec.ops.clip import Clip
from rec.ops.fill_median import FillMedian
from rec.ops.fill_missing import FillMissing
from rec.ops.log import LogOp
from rec.ops.normalize import Normalize
from rec.ops.op import Op

OPS: dict[str, type[Op]] = {op.name(): op for op in (FillMissing, FillMedian, Clip, LogOp, Normalize, Categorify)}


def make_op(name: str, arguments: Mapping[str, Any], where: str) -> Op:
    """Return the operator of a name. Raises ConfigError with the nearest name of an unknown operator or argument."""
    if name not in OPS:
        raise ConfigError(f"{where}: unknown operator {name!r}; {_nearest(name, list(OPS))}")
    known = [f.name for f in dataclasses.fields(OPS[name])]  # type: ignore[arg-type]
    for argument in arguments:
        if argument not in known:
            raise ConfigError(f"{where}: operator {name!r} has no argument {argument!r}; {_nearest(argument, known)}")
    try:
        return OPS[name](**arguments)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(str(name), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known are {', '.join(known)}" if known else "it takes none"
