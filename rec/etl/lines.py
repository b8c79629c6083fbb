"""One streaming pass over a text file: digest, lines, and what the scan has to know. Runs in Spark tasks."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
from pydantic import BaseModel, ConfigDict

from rec.core.errors import InputError
from rec.etl.layout import SAMPLE_LINES, Layout, decide_layout, parse_header

BLOCK_BYTES = 8 << 20
BOM = b"\xef\xbb\xbf"
# Control characters that may serve a csv reader as separator; white space, quote and NUL mean something to it.
SEPARATORS = bytes([*range(0x01, 0x09), *range(0x0E, 0x20), 0x7F])
# Java's String.trim, by which Spark's csv reader tells an empty line, takes every byte up to the space.
TRIMMED = bytes(range(0x21))


class Part(BaseModel):
    """A file that Spark reads, and the number of its first line within the source file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    first_line: int = 1


class Intake(BaseModel):
    """What one pass found. ``num_trimmed`` counts the lines that the csv reader would drop without a word."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    sha256: str
    num_bytes: int
    modified_ns: int
    num_lines: int
    num_trimmed: int
    bom: bool
    utf8: bool
    separators: tuple[int, ...]
    layout: Layout
    warnings: tuple[str, ...]
    parts: tuple[Part, ...]

    @property
    def csv_separators(self) -> frozenset[int]:
        """Bytes by which the csv reader keeps every line whole; none where only the text reader does."""
        return frozenset() if self.num_trimmed else frozenset(self.separators)


class LineCounter:
    """Counts over a text that comes in blocks. Lines end in a line feed; the last one may lack it."""

    def __init__(self, path: str, day_column: str | None):
        self.path, self.day_column = path, day_column
        self.num_lines = self.num_trimmed = 0
        self.bom: bool | None = None
        self.utf8 = True
        self.separators = SEPARATORS
        self.sample: list[bytes] = []
        self._header: Layout | None = None
        self._rest: list[bytes] = []

    def feed(self, block: bytes) -> None:
        """Count the whole lines that end in this block."""
        end = block.rfind(b"\n") + 1
        if end:
            self._count(b"".join([*self._rest, block[:end]]))
            self._rest = []
        if end < len(block):
            self._rest.append(block[end:])

    def close(self) -> None:
        """Count a last line without line feed."""
        rest = b"".join(self._rest)
        if self.bom is None and rest == BOM:
            self.bom = True
        elif rest:
            self._count(rest + b"\n")
        self.bom = bool(self.bom)

    def _count(self, lines: bytes) -> None:
        if self.bom is None:
            self.bom = lines.startswith(BOM)
            lines = lines[3:] if self.bom else lines
        self.separators = bytes(b for b in self.separators if b not in lines)
        self.utf8 = self.utf8 and _is_utf8(lines)
        if b"\0" in lines or not self.utf8:
            self.separators = b""  # There NUL is the quote that stands for none, and stray bytes would be replaced.
        data = np.frombuffer(lines, np.uint8)
        ends = np.flatnonzero(data == ord("\n"))
        starts = np.concatenate([[0], ends[:-1] + 1])
        doubtful = np.flatnonzero((data[starts] <= 0x20) & (data[ends - 1] <= 0x20))
        self.num_trimmed += sum(not lines[starts[k] : ends[k]].strip(TRIMMED) for k in doubtful)
        self._take_sample(lines, starts, ends)
        self._refuse_other_header(lines)
        self.num_lines += len(ends)

    def _take_sample(self, lines: bytes, starts: np.ndarray, ends: np.ndarray) -> None:
        for start, end in zip(starts, ends):
            if len(self.sample) == SAMPLE_LINES:
                return
            line = lines[start:end].removesuffix(b"\r")
            if line.strip():
                self.sample.append(line)
                if len(self.sample) == 1:
                    self._header = parse_header(line, self.day_column)
                    if self._header and not _is_utf8(line):
                        raise InputError(
                            f"{self.path}: its header is not UTF-8 ({line[:80]!r}); write the file in UTF-8"
                        )

    def _refuse_other_header(self, lines: bytes) -> None:
        """A second header with other columns would give every row after it another meaning."""
        if self._header is None:
            return
        lower = lines.lower()
        token = max((n.lower().encode() for n in self._header.names), key=lambda n: (n == b"label", len(n)))
        at = lower.find(token)
        while at >= 0:
            start, end = lower.rfind(b"\n", 0, at) + 1, lower.find(b"\n", at)
            line = lines[start:end].removesuffix(b"\r")
            if line.decode("utf-8", "replace").lower() != self._header.header and parse_header(line, self.day_column):
                number = self.num_lines + lines.count(b"\n", 0, start) + 1
                raise self._other_header(number, line)
            at = lower.find(token, end)

    def _other_header(self, number: int, line: bytes) -> InputError:
        assert self._header is not None
        bare = parse_header(line.removeprefix(BOM), self.day_column)
        names = [name.lower() for name in self._header.names]
        if bare and bare.separator == self._header.separator and [name.lower() for name in bare.names] == names:
            what = "a byte order mark before it" if line.startswith(BOM) else "other white space around its names"
            return InputError(
                f"{self.path}: line {number} is the first header again, with {what}; remove the line or write it as "
                "the first one is"
            )
        return InputError(
            f"{self.path}: line {number} is a header of other columns ({line.decode('utf-8', 'replace')[:80]!r}) than "
            f"the first ({self._header.header[:80]!r}); split the file there"
        )


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def measure(path: str, blocks: Iterable[bytes], day_column: str | None) -> LineCounter:
    """Return the counts of a text given in blocks."""
    counter = LineCounter(path, day_column)
    for block in blocks:
        counter.feed(block)
    counter.close()
    return counter


def read_blocks(file: BinaryIO, digest: "hashlib._Hash") -> Iterator[bytes]:
    """Yield a file's bytes and add them to the digest."""
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
        yield block


def intake_plain(path: str, day_column: str | None) -> Intake:
    """Measure a file that Spark reads as it lies."""
    before, digest = os.stat(path), hashlib.sha256()
    with open(path, "rb") as file:
        counter = measure(path, read_blocks(file, digest), day_column)
    return intake_of(counter, before, digest.hexdigest(), (Part(path=path),))


def intake_of(counter: LineCounter, before: os.stat_result, sha256: str, parts: tuple[Part, ...]) -> Intake:
    """Return what a pass found; ``before`` is the file's state as the pass began."""
    layout, warning = decide_layout(counter.sample, counter.day_column)
    return Intake(
        path=counter.path,
        sha256=sha256,
        num_bytes=before.st_size,
        modified_ns=before.st_mtime_ns,
        num_lines=counter.num_lines,
        num_trimmed=counter.num_trimmed,
        bom=counter.bom is True,
        utf8=counter.utf8,
        separators=tuple(counter.separators),
        layout=layout,
        warnings=(warning,) if warning else (),
        parts=parts,
    )
