"""What a recipe says about its source: where it lies, how a line becomes a row, and what tells a row's day."""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rec.core.config import Config, LocalPath, local_path
from rec.core.errors import ConfigError, DayError
from rec.core.keys import KeyKind

MAX_QUARANTINE_FRACTION = 0.001

# Columns beside the features in the feature table and the goldens. Spark tells no upper from lower case in a name.
RESERVED = frozenset({"label", "row_key", "day", "golden_id", "state_id"})

_NO_ROOT = re.compile(r"%[0-9A-Fa-f]{2}|[#?\\\x00-\x1f\x7f]")

Cut = Annotated[int, Field(gt=0)] | Annotated[float, Field(gt=0, le=1)]


def root_path(given: str | Path) -> str:
    """Return a root as ``local_path`` does. Raises ConfigError for a name under which delta-rs and Spark differ.

    delta-rs takes a path for a URL's: it reads %20 as a space, a backslash as a slash, and finds no log behind # or ?.
    """
    text = local_path(given)
    found = _NO_ROOT.search(os.path.abspath(text))
    if found:
        raise ConfigError(
            f"root {text!r}: {found[0]!r} in its path means something else to a reader of Delta tables; use a path "
            "without %, #, ?, backslashes and control characters"
        )
    return text


RootPath = Annotated[str, AfterValidator(root_path)]


class DayRule(Config):
    """What tells the day of a row; exactly one of the three.

    ``column``: an instant (a date, a timestamp, ISO text, or whole seconds since 1970); its UTC date as yyyymmdd.
    ``path``: a regular expression with one group; the number it captures at its last match in a file's path.
    ``lines``: the last line of each day but the last, counted over the files in path order; a whole number is a
    line, a fraction a share of all lines, rounded down. Days are 0, 1, …
    """

    column: str | None = None
    path: str | None = None
    lines: tuple[Cut, ...] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> "DayRule":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise DayError(
                f"no way to tell the day: {' and '.join(given) or 'no rule'} given; "
                "give exactly one of {column: NAME}, {path: 'day_(\\d+)'}, {lines: [0.8, 0.9]}"
            )
        if self.path is not None:
            _check_pattern(self.path)
        return self


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ConfigError(f"day.path {pattern!r} is not a regular expression: {error}") from None
    if groups != 1:
        raise ConfigError(f"day.path {pattern!r} has {groups} groups; put one around the number, as in 'day_(\\d+)'")


class ParquetColumns(Config):
    """Which columns of a Parquet source are read, and as what; ``sparse`` gives each column's kind of key."""

    label: str | None = None
    dense: tuple[str, ...] = ()
    sparse: dict[str, KeyKind] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names(self) -> "ParquetColumns":
        names = [*self.dense, *self.sparse]
        if not names:
            raise ConfigError("columns: neither dense nor sparse names a column; name at least one")
        lower = [name.lower() for name in names]
        for name, key in zip(names, lower):
            if lower.count(key) > 1:
                raise ConfigError(
                    f"columns: {name!r} is named {lower.count(key)} times, upper and lower case being one; name it once"
                )
            if key in RESERVED or key.startswith("_") or "`" in name:
                raise ConfigError(f"columns: a feature cannot be called {name!r}; rename the column in the source")
            if f"raw_{key}" in lower:
                raise ConfigError(
                    f"columns: the goldens keep the raw values of {name!r} as 'raw_{name}', which is a feature too; "
                    "rename that one in the source"
                )
            if self.label is not None and key == self.label.lower():
                raise ConfigError(f"columns: {name!r} is the label and a feature; a model would learn its answer")
        return self


class SourceConfig(Config):
    """The ``source`` section of a recipe. ``columns`` belongs to ``layout: parquet``, ``pad_right`` to text.

    ``work_dir`` takes parsed lines, up to 0.8 of the text's bytes, and the text of gzip files (by default ``work``
    below the root); every executor must reach it.
    """

    path: LocalPath
    layout: Literal["criteo", "parquet"] = "criteo"
    day: DayRule
    columns: ParquetColumns | None = None
    pad_right: bool = False
    max_quarantine_fraction: Annotated[float, Field(ge=0, le=1)] = MAX_QUARANTINE_FRACTION
    work_dir: LocalPath | None = None

    @model_validator(mode="after")
    def _fits_layout(self) -> "SourceConfig":
        if self.layout == "parquet" and self.columns is None:
            raise ConfigError("layout parquet needs columns: {label: …, dense: […], sparse: {NAME: hex32}}")
        if self.layout == "criteo" and self.columns is not None:
            raise ConfigError("columns given for layout criteo, whose columns are fixed; remove them")
        if self.layout == "parquet" and self.pad_right:
            raise ConfigError("pad_right is for lines of text; remove it from a Parquet source")
        return self
