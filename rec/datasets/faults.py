"""Lines that are not rows, planted at known places, each with the bin that an exact reader puts it in."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

HEADER = b"\t".join([b"label", *(b"I%d" % i for i in range(1, 14)), *(b"C%d" % i for i in range(1, 27))])
BLANKS = (b"", b"  ", b"\t" * 39)


@dataclass(frozen=True)
class Fault:
    """How the fields of a sound row are spoiled, and the reason a reader gives."""

    reason: str
    spoil: Callable[[list[bytes]], list[bytes]]


def _replace(field: int, text: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda fields: [*fields[:field], text, *fields[field + 1 :]]


FAULTS = (
    Fault("short:37", lambda fields: fields[:-3]),
    Fault("long:41", lambda fields: [*fields, b""]),
    Fault("int:I3", _replace(3, b"9223372036854775808")),
    Fault("cat:C7", _replace(20, b"7E0CCCCF")),
    Fault("label", _replace(0, b"2")),
    Fault("short:39", lambda fields: [*fields[:8], *fields[9:]]),
    Fault("int:I11", _replace(11, b"12x")),
    Fault("cat:C1", _replace(14, b'"68fd1e64')),
    Fault("cat:C26", _replace(39, b"NULL")),
    Fault("label", _replace(0, b"click")),
    Fault("long:42", lambda fields: [*fields[:20], b"", b"", *fields[20:]]),
)


@dataclass(frozen=True)
class PlantedLine:
    """A line that stands before row ``before_row`` (from 0) of its file as line ``line`` (from 1).

    Without ``text`` it is the row itself, spoiled by ``fault``.
    """

    before_row: int
    line: int
    bin: str
    text: bytes | None = None
    fault: Fault | None = None

    def content(self, row_text: bytes) -> bytes:
        """Return the line, its line feed included, given the text of the row that it stands before."""
        if self.fault is None:
            return (self.text or b"") + b"\n"
        return b"\t".join(self.fault.spoil(row_text.rstrip(b"\r\n").split(b"\t"))) + b"\n"


def plan_lines(places: np.ndarray, *, num_headers: int, num_blank: int) -> list[PlantedLine]:
    """Return a planted line for each place (a row number), ordered by line; headers and blanks first come, then faults.

    Faults take turns, so that any number of them shows as many reasons as there can be.
    """
    kinds: list[tuple[str, bytes | None, Fault | None]] = [("header", HEADER, None)] * num_headers
    kinds += [("blank", BLANKS[i % len(BLANKS)], None) for i in range(num_blank)]
    faults = (FAULTS[i % len(FAULTS)] for i in range(len(places) - len(kinds)))
    kinds += [(fault.reason, None, fault) for fault in faults]
    order = np.argsort(places, kind="stable")
    return [PlantedLine(int(places[k]), int(places[k]) + position + 1, *kinds[k]) for position, k in enumerate(order)]
