"""One check for the arguments of every operator: what its annotations say, and nothing converted on the way."""

import dataclasses
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rec.core.errors import ConfigError

if TYPE_CHECKING:
    from rec.ops.op import Op

_WANTED = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a text", NoneType: "null"}


def check_arguments(op: "Op") -> None:
    """Raise ConfigError naming operator, argument, value and what is asked for.

    Strict: the text '0' and true are no numbers. Neither is NaN, which no comparison holds for.
    """
    for argument, (adapter, wanted) in _adapters(type(op)).items():
        value = getattr(op, argument)
        try:
            adapter.validate_python(value)
        except ValidationError:
            raise ConfigError(f"{op.name()}: {argument} = {value!r}; give {wanted}") from None


@cache
def _adapters(op: type["Op"]) -> dict[str, tuple[TypeAdapter[Any], str]]:
    hints = get_type_hints(op)
    config = ConfigDict(strict=True, allow_inf_nan=False)
    return {
        field.name: (TypeAdapter(hints[field.name], config=config), _wanted(hints[field.name]))
        for field in dataclasses.fields(op)  # type: ignore[arg-type]
    }


def _wanted(hint: Any) -> str:
    return " or ".join(_WANTED.get(kind, str(kind)) for kind in get_args(hint) or (hint,))
