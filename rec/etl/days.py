"""Which day a row belongs to, by the recipe's rule. A day is an INT32."""

import re
from collections.abc import Sequence
from fractions import Fraction

from rec.core.errors import DayError

_INT32_MAX = 2**31 - 1


def day_of_path(pattern: str, path: str) -> int:
    """Return the number that a pattern's group captures at its last match in a path."""
    matches = list(re.finditer(pattern, path))
    if not matches:
        raise DayError(f"{path}: no way to tell the day, day.path {pattern!r} does not match; mend the expression")
    captured = matches[-1].group(1)
    if captured is None or not captured.isascii() or not captured.isdigit() or int(captured) > _INT32_MAX:
        raise DayError(f"{path}: day.path {pattern!r} captures {captured!r}, not a number up to {_INT32_MAX}")
    return int(captured)


def last_lines(cuts: Sequence[int | float], num_lines: int) -> list[int]:
    """Return the last line of each day but the one that takes the rest.

    A fraction is taken of all lines as its decimal digits say, rounded down.
    """
    lines = [cut if isinstance(cut, int) else int(Fraction(str(cut)) * num_lines) for cut in cuts]
    for earlier, later in zip([0, *lines], lines):
        if later <= earlier:
            raise DayError(f"day.lines {list(cuts)}: cut at line {later} follows line {earlier}; cuts must increase")
    if lines and lines[-1] > num_lines:
        raise DayError(f"day.lines {list(cuts)}: cut at line {lines[-1]}, the source has {num_lines}; cut within it")
    return lines


def cut_day_sql(line: str, lines: Sequence[int]) -> str:
    """Return SQL for the day of a line that is numbered over all files."""
    return " + ".join(["0", *(f"CAST({line} > {cut} AS INT)" for cut in lines)])


def date_sql(instant: str, kind: str) -> str:
    """Return SQL for the UTC date of an instant as yyyymmdd; null where it is none.

    ``kind`` is ``text`` (whole seconds since 1970, or an ISO date or timestamp, taken as UTC where it names no zone),
    ``seconds``, ``timestamp`` or ``date``. Seconds are counted in whole days, so that no time zone enters.
    """
    if kind == "text":
        # A time of day alone would be cast to today's.
        dated = f"{instant} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}' AND SUBSTRING({instant}, 11, 1) IN ('', ' ', 'T')"
        cast = f"CAST(CASE WHEN {dated} THEN CAST({instant} AS TIMESTAMP) END AS BIGINT)"
        instant = f"(CASE WHEN {instant} RLIKE '^-?[0-9]+$' THEN CAST({instant} AS BIGINT) ELSE {cast} END)"
    if kind == "timestamp":
        instant = f"CAST({instant} AS BIGINT)"
    if kind == "date":
        return _yyyymmdd(instant)
    # The years 1 to 9999, beyond which yyyymmdd means nothing.
    in_range = f"{instant} BETWEEN -62135596800 AND 253402300799"
    date = f"DATE_ADD(DATE '1970-01-01', CAST(FLOOR({instant} / 86400) AS INT))"
    return f"CASE WHEN {in_range} THEN {_yyyymmdd(date)} END"


def _yyyymmdd(date: str) -> str:
    return f"(YEAR({date}) * 10000 + MONTH({date}) * 100 + DAY({date}))"
