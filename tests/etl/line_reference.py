"""A plain-Python account of which bin each line of a labelled tab file belongs to."""

import re

NAMES = ["label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27))]
GOOD = ["1", *(str(k) for k in range(13)), *(f"{k:08x}" for k in range(26))]


def good_line(**changes: str) -> str:
    """Return a valid line with some columns changed."""
    return "\t".join(changes.get(name, value) for name, value in zip(NAMES, GOOD))


def split_lines(content: bytes) -> list[bytes]:
    """Return the physical lines of a file, without byte order mark and line ends."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix(b"\r") for line in lines]


def bin_of(line: bytes, pad_right: bool = False) -> str:
    """Return accepted, padded, header or the reason of a quarantine."""
    if not line.strip(b" \t\n\r\x0b\x0c"):
        return "blank"
    if line.lower() == "\t".join(NAMES).lower().encode():
        return "header"
    fields = line.split(b"\t")
    short = len(fields) < len(NAMES)
    if len(fields) > len(NAMES):
        return f"long:{len(fields)}"
    if short and not pad_right:
        return f"short:{len(fields)}"
    for name, field in zip(NAMES, fields):
        if name == "label":
            if field not in (b"0", b"1"):
                return "label"
        elif field and not _is_value(name, field):
            kind = "int" if name[0] == "I" else "cat"
            return f"{'type' if short else kind}:{name}"
    return "padded" if short else "accepted"


def values_of(line: bytes) -> list[int | str | None]:
    """Return the values of a line that is a row, missing columns as None."""
    fields = [field.decode() for field in line.split(b"\t")]
    fields += [""] * (len(NAMES) - len(fields))
    numbers = [int(field.removesuffix(".0")) if field else None for field in fields[:14]]
    return [*numbers, *(field or None for field in fields[14:])]


def _is_value(name: str, field: bytes) -> bool:
    if name[0] == "C":
        return re.fullmatch(rb"[0-9a-f]{8}", field) is not None
    match = re.fullmatch(rb"([+-]?[0-9]+)(\.0)?", field)
    return match is not None and -(2**63) <= int(match[1]) < 2**63
