"""Numbers and raw values as a reader sees them, in HTML and on the terminal.

Raw values come from users' data. What a browser or a terminal would act on instead of showing (control characters,
escape sequences, direction overrides, zero-width characters, lone surrogates) is written out as an escape.
"""

import math
import re
from datetime import UTC, datetime
from typing import Any

DASH = "–"
_UNSHOWABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff0-\uffff"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_UNSHOWABLE_IN_LINES = re.compile(_UNSHOWABLE.pattern.replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: Any, max_chars: int = 60) -> str:
    """Return a raw value in one line of showable characters, cut at ``max_chars`` with its true length told."""
    if value is None:
        return "(missing)"
    text = str(value)
    if not text:
        return "(empty)"
    cut = _UNSHOWABLE.sub(_escape, text[:max_chars])
    return cut if len(text) <= max_chars else f"{cut}… ({len(text):,} characters)"


def shown_lines(text: str) -> str:
    """As ``shown``, for a text whose line ends stay and which is never cut."""
    return _UNSHOWABLE_IN_LINES.sub(_escape, text)


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else: JSON has null where a figure was NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def count(value: Any) -> str:
    found = number(value)
    return DASH if found is None else f"{found:,.0f}"


def decimal(value: Any, digits: int = 4) -> str:
    found = number(value)
    return DASH if found is None else f"{found:,.{digits}f}"


def scientific(value: Any) -> str:
    """Return a small difference: ``0`` where it is exactly that, else two digits and a power of ten."""
    found = number(value)
    return DASH if found is None else "0" if found == 0 else f"{found:.1e}"


def compact(value: Any) -> str:
    """Return four significant digits, with thousands separators where the number is large."""
    found = number(value)
    if found is None:
        return DASH
    return f"{found:,.0f}" if abs(found) >= 1000 or found == int(found) else f"{found:.4g}"


def size(megabytes: Any) -> str:
    """Return megabytes in the unit that shows something: KB below a tenth of one."""
    found = number(megabytes)
    if found is None:
        return DASH
    return f"{found:,.1f} MB" if found >= 0.1 else f"{1000 * found:,.1f} KB"


def percent(part: Any, whole: Any = 1, digits: int = 1) -> str:
    """Return ``part / whole`` as a percentage; a share that rounds to nothing but is something reads ``<0.1 %``."""
    above, below = number(part), number(whole)
    if above is None or not below:
        return DASH
    share, least = 100 * above / below, 10**-digits
    return f"<{least:.{digits}f} %" if 0 < share < least / 2 else f"{share:,.{digits}f} %"


def duration(seconds: Any) -> str:
    found = number(seconds)
    if found is None:
        return DASH
    if found < 60:
        return f"{found:.1f} s"
    minutes, rest = divmod(round(found), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def moment(started_utc: str) -> str:
    """Return ``2026-03-01 02:15 UTC``; a text that is no time stays as it is."""
    try:
        return datetime.fromisoformat(started_utc).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return shown(started_utc)


def interval(bounds: Any) -> str | None:
    """Return ``lo–hi`` with four decimals, or None where there is no such pair."""
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or None in (number(bounds[0]), number(bounds[1])):
        return None
    return f"{bounds[0]:.4f}–{bounds[1]:.4f}"
