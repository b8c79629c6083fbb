"""Loading a recipe: YAML, overrides, unknown keys refused with the nearest name."""

import difflib
import os
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from rec.core.errors import ConfigError, RecError


class Config(BaseModel):
    """Base of every config section: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


C = TypeVar("C", bound=BaseModel)

# Of two characters and more: a drive's letter is no scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(given: str | Path) -> str:
    """Return a path of a mounted file system without a leading file://. Raises ConfigError for any other scheme.

    Unrefused, s3a://bucket/lake would be a folder called ``s3a:`` in the working directory.
    """
    text = os.fspath(given)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() == "file":
        return "/" + text[len("file:") :].lstrip("/")
    raise ConfigError(
        f"{text!r}: {scheme[1]}:// is not supported, only paths that driver and executors mount (plain, or file:///…): "
        "files are renamed into place, and two drivers could commit one table version on an object store; name a folder"
    )


LocalPath = Annotated[str, AfterValidator(local_path)]


def load_config(cls: type[C], path: str | Path, overrides: list[str] | None = None) -> C:
    """Read a YAML file into ``cls``; ``overrides`` are ``dotted.path=yaml value`` and win over the file."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"recipe {path}: no such file; pass the path of a YAML file such as conf/criteo_demo.yaml")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"recipe {path}: expected a mapping at the top, found {type(content).__name__}")
    for override in overrides or []:
        _apply_override(content, override)
    return parse_config(cls, content, str(path))


def parse_config(cls: type[C], content: dict[str, Any], where: str) -> C:
    """Validate a mapping. Raises ConfigError with the first fault: place, field, value given and what is asked for."""
    try:
        return cls.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_first_fault(cls, content, error)}") from None


def _apply_override(content: dict[str, Any], override: str) -> None:
    path, separator, value = override.partition("=")
    if not separator or not path:
        raise ConfigError(f"--set {override!r}: expected path=value, such as train.seed=2")
    *parents, last = path.split(".")
    for name in parents:
        content = content.setdefault(name, {})
        if not isinstance(content, dict):
            raise ConfigError(f"--set {override!r}: {name!r} holds {content!r}, not a section")
    try:
        content[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override!r}: the value is not YAML: {' '.join(str(error).split())}") from None


def _first_fault(cls: type[BaseModel], content: Any, error: ValidationError) -> str:
    fault = error.errors()[0]
    cause = fault.get("ctx", {}).get("error")
    place = [p for p in fault["loc"] if isinstance(p, int) or not p.startswith(("function-", "tagged-"))]
    field = ".".join(str(p) for p in place)
    if isinstance(cause, RecError):
        return f"{field}: {cause}" if field else str(cause)
    if fault["type"] == "extra_forbidden":
        known = _known_keys(cls, place[:-1])
        near = difflib.get_close_matches(str(place[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
        return f"unknown key {field!r}; {hint}"
    if fault["type"] == "missing":
        return f"{field!r} is required; add it"
    return f"{field} = {fault['input']!r}: {fault['msg']}"


def _known_keys(cls: type[BaseModel], place: list[Any]) -> list[str]:
    """Field names of the section that ``place`` leads to, through optional and union annotations."""
    models = [cls]
    for step in place:
        if isinstance(step, int):
            continue
        fields = [m.model_fields[step].annotation for m in models if step in m.model_fields]
        found = [m for annotation in fields for m in _models_in(annotation)]
        # A step that is no field is the name pydantic gives a member of a union.
        models = found or [m for m in models if m.__name__ == step] or models
    return sorted({name for m in models for name in m.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for part in getattr(annotation, "__args__", ()) for m in _models_in(part)]
