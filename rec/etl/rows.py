"""From a line to a row, in SQL text: each line's one bin, and the values of an accepted one.

The columns at hand are ``line`` (without its line end) and ``fields`` (the line split at the separator).
"""

from rec.core.keys import HEX32_PATTERN
from rec.core.schema import Column
from rec.etl.layout import Layout, is_feature

HEADER, PADDED = "header", "padded"


def literal(text: str) -> str:
    """Return a text as a SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def outcome_sql(layout: Layout, *, pad_right: bool, day_column: str | None) -> str:
    """Return SQL for a line's bin: null for accepted, ``header``, ``padded``, else the reason of its quarantine.

    The first that holds counts. ``day_column`` names the field that ``day`` was made from, where there is one.
    """
    num_fields = len(layout.names)
    size = "SIZE(fields)"
    cases = [
        (r"NOT line RLIKE r'[^ \t\x0b\f\r]'", "'blank'"),
        (f"LOWER(line) = {literal(layout.header)}", f"'{HEADER}'"),
        (f"{size} > {num_fields}", f"CONCAT('long:', {size})"),
    ]
    if not pad_right:
        cases.append((f"{size} < {num_fields}", f"CONCAT('short:', {size})"))
    cases += [check for k, name in enumerate(layout.names) for check in _checks(name, k, num_fields, pad_right)]
    if day_column:
        cases.append(("day IS NULL", literal(f"day:{day_column}")))
    if pad_right:
        cases.append((f"{size} < {num_fields}", f"'{PADDED}'"))
    return "CASE " + " ".join(f"WHEN {condition} THEN {result}" for condition, result in cases) + " END"


def key_sql(column: Column, layout: Layout) -> str:
    """Return SQL for a column's value in an accepted line, a hex32 value as its number.

    Null where it is missing or the file has no such column.
    """
    sql_type = "INT" if column.role == "label" else "BIGINT"
    if column.name not in layout.names:
        return f"CAST(NULL AS {sql_type})"
    value = f"fields[{layout.names.index(column.name)}]"
    if column.key == "hex32":
        value = f"CONV(NULLIF({value}, ''), 16, 10)"
    return f"CAST({value} AS {sql_type})"


def _checks(name: str, k: int, num_fields: int, pad_right: bool) -> list[tuple[str, str]]:
    """Return the condition under which field ``k`` is no value of its column, and the reason."""
    field = f"COALESCE(fields[{k}], '')" if pad_right else f"fields[{k}]"
    if name == "label":
        return [(f"{field} NOT IN ('0', '1')", "'label'")]
    if not is_feature(name):
        return []
    kind = "int" if name[0] == "I" else "cat"
    reason = f"'{kind}:{name}'"
    if pad_right:
        reason = f"CASE WHEN SIZE(fields) < {num_fields} THEN 'type:{name}' ELSE {reason} END"
    return [(f"NOT ({field} = '' OR {_valid_int(field) if kind == 'int' else valid_hex(field)})", reason)]


def _valid_int(field: str) -> str:
    # The cast trims, takes fractions, and $ stops before a final line end: the two patterns leave digits alone.
    number = f"{field} RLIKE '^[+-]?[0-9]+([.]0)?$' AND NOT {field} RLIKE '[^0-9.+-]'"
    return f"(CAST({field} AS BIGINT) IS NOT NULL AND {number})"


def valid_hex(field: str) -> str:
    """Return SQL for whether a text is a hex32 value."""
    # The length holds off a line end that $ would overlook.
    return f"(LENGTH({field}) = 8 AND {field} RLIKE '{HEX32_PATTERN}')"


def plain_sql(layout: Layout, day_column: str | None) -> str:
    """Return SQL that is true for nearly every good line and no other, false else: one pattern, where _checks has 39.

    The pattern is in the form that the GPU takes: no group is repeated or left uncaptured.
    """
    num_fields, sep = len(layout.names), layout.separator
    last = max((k for k, name in enumerate(layout.names) if name == "label" or is_feature(name)), default=-1)
    start = sep.join(_plain_pattern(name, sep) for name in layout.names[: last + 1])
    conditions = [f"SIZE(fields) = {num_fields}"]
    if last == num_fields - 1:
        # $ overlooks a final line end such as U+2028, which the last field's own checks do not.
        checks = _checks(layout.names[last], last, num_fields, pad_right=False)
        conditions += [f"line RLIKE {literal(f'^{start}$')}", *(f"NOT ({bad})" for bad, _ in checks)]
    elif last >= 0:
        conditions.append(f"line RLIKE {literal(f'^{start}{sep}')}")
    return " AND ".join([*conditions, *(["day IS NOT NULL"] if day_column else [])])


def _plain_pattern(name: str, separator: str) -> str:
    if name == "label":
        return "[01]"
    if not is_feature(name):
        return f"[^{separator}]*"
    return "(-?[0-9]{1,18})?" if name[0] == "I" else "([0-9a-f]{8})?"
