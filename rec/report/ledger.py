"""The row ledger as a reader checks it: bins beside lines, per file and day, per day, and in all."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rec.report.text import count, number, shown

BINS = ("accepted", "padded", "header", "quarantined")
MAX_PATH_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class LedgerLine:
    """One file's lines of one day. ``bins`` follow BINS; unlabelled lines are a part of accepted and padded ones."""

    file: str
    day: int | None
    lines: int
    bins: tuple[int, ...]
    unlabelled: int
    reasons: dict[str, int]

    @property
    def unaccounted(self) -> int:
        return self.lines - sum(self.bins)

    @property
    def unexplained(self) -> int:
        """Quarantined lines without a reason."""
        return self.bins[-1] - sum(self.reasons.values())


@dataclass(frozen=True, kw_only=True)
class Ledger:
    lines: tuple[LedgerLine, ...]

    @property
    def total(self) -> LedgerLine:
        return _sum("All files", None, self.lines)

    @property
    def by_day(self) -> list[LedgerLine]:
        days = sorted({line.day for line in self.lines}, key=lambda day: (day is None, day or 0))
        return [_sum("", day, [line for line in self.lines if line.day == day]) for day in days]

    @property
    def num_files(self) -> int:
        return len({line.file for line in self.lines})

    @property
    def proven(self) -> bool:
        return not any(line.unaccounted or line.unexplained for line in self.lines)

    @property
    def proof(self) -> str:
        """One sentence: the sums that hold, or the first that does not."""
        for line in self.lines:
            file = shown(line.file, MAX_PATH_CHARS)
            place = file if line.day is None else f"{file}, day {line.day}"
            if line.unaccounted:
                return f"Bins do not add up: {place} has {count(line.lines)} lines, its bins {count(sum(line.bins))}."
            if line.unexplained:
                explained = count(sum(line.reasons.values()))
                return f"Reasons do not add up: {place} has {count(line.bins[-1])} quarantined, reasons {explained}."
        files = "1 file" if self.num_files == 1 else f"{count(self.num_files)} files"
        quarantined = f"reasons to {count(self.total.bins[-1])} quarantined"
        return f"Bins add up to {count(self.total.lines)} lines in {files}, {quarantined}."


def read_ledger(figures: dict[str, Any]) -> Ledger | None:
    """Return the ledger in an ETL stage's figures, or None where there is none."""
    rows = figures.get("ledger")
    if not rows:
        return None
    return Ledger(lines=tuple(_line(row) for row in rows))


def _line(row: dict[str, Any]) -> LedgerLine:
    reasons = {str(reason): int(found) for reason, found in (row.get("reasons") or {}).items()}
    return LedgerLine(
        file=str(row.get("file", "")),
        day=row.get("day"),
        lines=int(number(row.get("lines")) or 0),
        bins=tuple(int(number(row.get(name)) or 0) for name in BINS),
        unlabelled=int(number(row.get("unlabelled")) or 0),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def _sum(file: str, day: int | None, lines: Iterable[LedgerLine]) -> LedgerLine:
    lines = list(lines)
    reasons: Counter[str] = Counter()
    for line in lines:
        reasons.update(line.reasons)
    return LedgerLine(
        file=file,
        day=day,
        lines=sum(line.lines for line in lines),
        bins=tuple(sum(line.bins[i] for line in lines) for i in range(len(BINS))),
        unlabelled=sum(line.unlabelled for line in lines),
        reasons=dict(reasons.most_common()),
    )


def fold(lines: tuple[LedgerLine, ...], max_lines: int) -> list[LedgerLine]:
    """Return at most ``max_lines``: what is over is summed in the last one, so that sums stay whole."""
    if len(lines) <= max_lines:
        return list(lines)
    rest = lines[max_lines - 1 :]
    return [*lines[: max_lines - 1], _sum(f"{count(len(rest))} further entries, summed", None, rest)]


def common_folder(lines: Iterable[LedgerLine]) -> str:
    """Return the folder that holds all of the files, with its slash; empty where there is none."""
    parts = zip(*(line.file.split("/")[:-1] for line in lines))
    shared = "".join(f"{part}/" for part, *_ in takewhile(lambda found: len(set(found)) == 1, parts))
    return shared if shared.strip("/") else ""
