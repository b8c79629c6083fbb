"""Loading a recipe: YAML, overrides, unknown keys refused with the nearest name."""

import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from rec.core.errors import ConfigError
from rec.core.fault import fault_of


class Config(BaseModel):
    """Base of every config section: frozen, unknown keys refused, numbers finite and no truth values."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, given: Any, info: ValidationInfo) -> Any:
        # Pydantic takes true for 1, and "on", "y" and 1 for true.
        assert info.field_name is not None
        if cls.model_fields[info.field_name].annotation is bool:
            if not isinstance(given, bool):
                raise ConfigError(f"{given!r} is neither true nor false; give one of them")
        elif any(isinstance(value, bool) for value in (given if isinstance(given, list | tuple) else [given])):
            raise ConfigError(f"{given!r}: true and false are not taken here; give a number, or put a text in quotes")
        return given


C = TypeVar("C", bound=BaseModel)

# Of two characters and more: a drive's letter is no scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def local_path(given: str | Path) -> str:
    """Return a path of a mounted file system without a leading file:// and with ~ expanded.

    Raises ConfigError for any other scheme: unrefused, s3a://bucket/lake would be a folder called ``s3a:`` in the
    working directory, as would ~nobody; and an empty path would be the working directory itself.
    """
    text = os.path.expanduser(os.fspath(given))
    if not text.strip():
        raise ConfigError(f"{text!r}: an empty path; name a file or folder (. is the working directory)")
    if text.startswith("~"):
        raise ConfigError(f"{text!r}: no home folder of that user; give the path in full")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() == "file":
        return "/" + text[len("file:") :].lstrip("/")
    raise ConfigError(
        f"{text!r}: {scheme[1]}:// is not supported, only paths that driver and executors mount (plain, or file:///…): "
        "files are renamed into place, and two drivers could commit one table version on an object store; name a folder"
    )


def _local_folder(given: Any) -> Any:
    return local_path(given) if isinstance(given, str | Path) else given


LocalPath = Annotated[str, AfterValidator(local_path)]
# Before: a Path of nothing is the working directory.
LocalFolder = Annotated[Path, BeforeValidator(_local_folder)]


def load_config(cls: type[C], path: str | Path, overrides: list[str] | None = None) -> C:
    """Read a YAML file into ``cls``; ``overrides`` are ``dotted.path=yaml value`` and win over the file."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"recipe {path}: no such file; pass the path of a YAML file such as conf/criteo_demo.yaml")
    try:
        content = _read_yaml(path.read_text(encoding="utf-8"), f"recipe {path}") or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"recipe {path}: expected a mapping at the top, found {type(content).__name__}")
    for override in overrides or []:
        _apply_override(content, override)
    return parse_config(cls, content, str(path))


def parse_config(cls: type[C], content: dict[str, Any], where: str) -> C:
    """Validate a mapping. Raises ConfigError with the first fault: place, field, value given and what is asked for."""
    for field, value in _numbers_in(content, ""):
        if not math.isfinite(value):
            raise ConfigError(f"{where}: {field} = {value!r}: expected a finite number")
    try:
        return cls.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{where}: {fault_of(cls, content, error)}") from None


def _numbers_in(content: Any, field: str) -> Iterator[tuple[str, float]]:
    """Yield every float below a mapping: operators take theirs by names that no config knows."""
    if isinstance(content, float):
        yield field, content
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content if isinstance(content, list | tuple) else ())
    )
    for key, value in items:
        yield from _numbers_in(value, f"{field}.{key}" if field else str(key))


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
        content[last] = _read_yaml(value, f"--set {override!r}")
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override!r}: the value is not YAML: {' '.join(str(error).split())}") from None


def _read_yaml(text: str, where: str) -> Any:
    loader = _Loader(text)
    loader.where = where
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice: of the two, YAML's own loader takes the last without a word."""

    where: str

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and first.setdefault((key.tag, key.value), key) is not key:
                lines = [k.start_mark.line + 1 for k in (first[key.tag, key.value], key)]
                raise ConfigError(
                    f"{self.where}: key {key.value!r} is given twice, on lines {lines[0]} and {lines[1]}; remove one"
                )
        return node
