"""A path in as many lines as a terminal's width asks for: broken after a slash, else after another separator."""

import re
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_PARTS = (r"[^/\s]*[/\s]?", r"[^_.=-]*[_.=-]?", "(?s).")


@dataclass(frozen=True)
class FoldedPath:
    """Text without markup. Nothing of it is cut, and a name is broken within only where it is wider than the line."""

    path: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in folded(self.path, options.max_width):
            yield Text(line, style=self.style, no_wrap=True, overflow="ignore")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = max(map(cell_len, _split(self.path, 0)), default=1)
        return Measurement(widest, cell_len(self.path)).clamp(max_width=options.max_width)


def folded(path: str, width: int) -> list[str]:
    """Return the lines, each of at most ``width`` columns, that together are the path."""
    lines = [""]
    for part in _fitting(path, width, 0):
        if cell_len(lines[-1]) + cell_len(part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return lines


def _fitting(text: str, width: int, level: int) -> list[str]:
    """Split no finer than the width asks for."""
    if level == len(_PARTS) or (level > 0 and cell_len(text) <= width):
        return [text]
    return [piece for part in _split(text, level) for piece in _fitting(part, width, level + 1)]


def _split(text: str, level: int) -> list[str]:
    return [part for part in re.findall(_PARTS[level], text) if part]
