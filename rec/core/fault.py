"""What is wrong with a mapping, in one line of plain words: pydantic's own name classes, unions and branches."""

import difflib
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError

from rec.core.errors import RecError

# By the type of pydantic's error, with its context filled in.
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a section of keys and values",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "path_type": "a path",
}


def fault_of(cls: type[BaseModel], content: Any, error: ValidationError) -> str:
    """Return the first fault of a mapping: field, value given and what is asked for."""
    faults: list[Any] = error.errors()
    # A misspelt key also makes the one that was meant missing.
    fault = min(faults, key=lambda f: f["type"] != "extra_forbidden")
    place = _place(fault, content)
    cause = fault.get("ctx", {}).get("error")
    field = ".".join(map(str, place))
    if isinstance(cause, RecError):
        return f"{field}: {cause}" if field else str(cause)
    if fault["type"] == "extra_forbidden":
        known = _known_keys(cls, place[:-1])
        near = difflib.get_close_matches(str(place[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        return f"unknown key {field!r}; {hint}"
    if fault["type"] == "missing":
        return f"{field!r} is required; add it"
    # Each branch of a union has a fault; the one that came deepest is what was meant.
    places = [(_place(f, content), f) for f in faults]
    deepest = max((p for p, _ in places if p[: len(place)] == place), key=len)
    branches = [f for p, f in places if p == deepest]
    wanted = dict.fromkeys(_wanted(cls, deepest, f) for f in branches)
    return f"{'.'.join(map(str, deepest))} = {branches[0]['input']!r}: expected {' or '.join(wanted)}"


def _place(fault: Any, content: Any) -> list[int | str]:
    """Return the steps that lead through the mapping: the others are names of a union's branches."""
    steps, last = [], len(fault["loc"]) - 1
    for number, step in enumerate(fault["loc"]):
        indices = range(len(content)) if isinstance(content, list | tuple) else ()
        if step in (content if isinstance(content, dict) else indices):
            content = content[step]
        elif not (fault["type"] == "missing" and number == last):
            continue
        steps.append(step)
    return steps


def _wanted(cls: type[BaseModel], place: list[int | str], fault: Any) -> str:
    if fault["type"] in ("model_type", "model_attributes_type", "dataclass_type"):
        return f"a section with {', '.join(_known_keys(cls, place))}"
    if fault["type"] in _WANTED:
        bounds = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in fault.get("ctx", {}).items()}
        return _WANTED[fault["type"]].format(**bounds)
    return str(fault["msg"])


def _known_keys(cls: type[BaseModel], place: list[int | str]) -> list[str]:
    """Field names of the section that ``place`` leads to, through optional and union annotations."""
    models = [cls]
    for step in place:
        if isinstance(step, str):
            models = [section for model in models for section in _below(model, step)]
    return sorted({name for m in models for name in m.model_fields})


def _below(model: type[BaseModel], step: str) -> list[type[BaseModel]]:
    # A root model is a mapping whose keys are the user's.
    name = "root" if issubclass(model, RootModel) else step
    return _models_in(model.model_fields[name].annotation) if name in model.model_fields else []


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in _models_in(part)]
