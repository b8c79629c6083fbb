"""Layout of a text file: which field of a line is which column, told by the file's first lines."""

import re
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict

SAMPLE_LINES = 1000
NUM_DENSE, NUM_SPARSE = 13, 26
FEATURES = tuple([f"I{k}" for k in range(1, NUM_DENSE + 1)] + [f"C{k}" for k in range(1, NUM_SPARSE + 1)])

LayoutKind = Literal["labelled", "unlabelled", "header", "empty"]

_FEATURE = re.compile(r"[ic][1-9][0-9]*\Z")
_DATUM = re.compile(r"([+-]?[0-9]+([.][0-9]+)?|[0-9a-fA-F]{8})\Z")


class Layout(BaseModel):
    """``names`` of the fields from left to right: ``label``, ``I1``, ``C1`` …, other columns as the header has them.

    ``header`` is a header line of such a file in lower case.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: LayoutKind
    separator: str
    names: tuple[str, ...]
    header: str

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(n for n in self.names if is_feature(n))


def is_feature(name: str) -> bool:
    return _FEATURE.match(name.lower()) is not None


def _tab_layout(kind: LayoutKind, names: tuple[str, ...]) -> Layout:
    return Layout(kind=kind, separator="\t", names=names, header="\t".join(names).lower())


LABELLED = _tab_layout("labelled", ("label", *FEATURES))
UNLABELLED = _tab_layout("unlabelled", FEATURES)
EMPTY = _tab_layout("empty", ("label", *FEATURES))


def feature_order(name: str) -> tuple[bool, int]:
    """Sort key: I1, I2, …, I13, C1, C2, …"""
    return name[0] == "C", int(name[1:])


def parse_header(line: bytes, day_column: str | None = None) -> Layout | None:
    """Return the layout that a line of column names declares, or None where the line is no such header.

    No field may be a number or a hash, and at least one must name a column that is read, each of those once.
    """
    text = line.decode("utf-8", "replace")
    for separator in (",", "\t"):
        names = tuple(canonical_name(field) for field in text.split(separator))
        known = [n for n in names if n == "label" or is_feature(n) or (day_column and n.lower() == day_column.lower())]
        if len(names) > 1 and known and len(set(known)) == len(known) and not any(map(_DATUM.match, names)):
            return Layout(kind="header", separator=separator, names=names, header=text.lower())
    return None


def canonical_name(field: str) -> str:
    """Return a header field's column: ``label`` and features without regard to case, any other name as it stands."""
    name = field.strip()
    if name.lower() == "label":
        return "label"
    return name.upper() if is_feature(name) else name


def decide_layout(lines: Iterable[bytes], day_column: str | None = None) -> tuple[Layout, str | None]:
    """Return the most frequent layout of a file's first non-blank lines, and a warning where none fits.

    A header declares its layout when it is the first line. Equal counts go to the header, then to labelled.
    """
    lines = list(lines)
    if not lines:
        return EMPTY, None
    header = parse_header(lines[0], day_column)
    counts = {
        layout: sum(line.count(layout.separator.encode()) + 1 == len(layout.names) for line in lines)
        for layout in (header, LABELLED, UNLABELLED)
        if layout is not None
    }
    best = max(counts, key=lambda layout: counts[layout])
    if counts[best]:
        return best, None
    return LABELLED, f"none of the first {len(lines)} lines fits a layout; read as 40 tab-separated fields"
