"""Encode keys with vocabulary entries, by paths that give the same ids.

A column within its broadcast limit is a look-up in arrays that are part of the query (see rec.ops.slots) or, on a GPU
and for text, one broadcast join. Of a larger one the most frequent values are broadcast; the rows whose key is still
open are laid out as (row, column, key), joined with the rest of the vocabulary by shuffle, and brought back to their
rows: two shuffles however many columns are large, and no missing key enters either.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rec.core.errors import ConfigError
from rec.core.ids import MISSING, UNSEEN, first_vocabulary_id
from rec.core.schema import Column
from rec.ops.counting import key_texts
from rec.ops.dense import SQL_TYPES
from rec.ops.op import Columns, quoted, text_literal
from rec.ops.slots import slot_lookups
from rec.ops.vocabulary import NumberKeys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Values broadcast in all, as a multiple of the limit of one column.
_ALL_COLUMNS = 4


def broadcast_heads(sizes: Mapping[str, int], max_values: int) -> dict[str, int | None]:
    """Return how many of a column's values are broadcast: None for all of them, smallest columns first."""
    left = max_values * _ALL_COLUMNS
    heads: dict[str, int | None] = {}
    large = []
    for name, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        if size <= min(max_values, left):
            heads[name] = None
            left -= size
        else:
            large.append(name)
    return heads | {name: min(max_values, left // len(large)) for name in large}


def encode(
    df: "DataFrame",
    types: Mapping[str, str],
    entries: "Callable[[], DataFrame]",
    heads: Mapping[Column, int | None],
    arrays: Mapping[str, NumberKeys],
) -> "DataFrame":
    """Return the frame with the columns of ``heads`` replaced by ids of dtype ``types[name]``.

    ``arrays`` hold the vocabulary of columns that are looked up without a join; ``entries()`` gives that of the others.
    """
    keys = key_texts(df, tuple(heads))
    keyed = df.selectExpr("*", *[f"{keys[c.name]} AS {quoted(_key(c))}" for c in heads])
    if arrays:
        with slot_lookups(df.sparkSession, arrays, {c.name: _key(c) for c in heads}) as texts:
            keyed = keyed.selectExpr("*", *[f"{texts[c.name]} AS {quoted(_id(c))}" for c in heads if c.name in arrays])
    joined = {c: head for c, head in heads.items() if c.name not in arrays}
    if joined:
        keyed = _join(keyed, entries(), joined)
    ids = {c.name: f"CAST({_id_text(c)} AS {SQL_TYPES[types[c.name]]}) AS {quoted(c.name)}" for c in heads}
    return keyed.selectExpr(*[ids.get(name, quoted(name)) for name in df.columns])


def _join(keyed: "DataFrame", entries: "DataFrame", heads: Mapping[Column, int | None]) -> "DataFrame":
    for column, head in heads.items():
        keyed = keyed.join(_head(entries, column, head).hint("broadcast"), _key(column), "left")
    large = tuple(c for c, head in heads.items() if head is not None)
    if not large:
        return keyed
    return _join_tails(keyed, large, _tails(entries, large, {c.name: head for c, head in heads.items()}))


def _key(column: Column) -> str:
    return f"key of {column.name}"


def _id(column: Column) -> str:
    return f"id of {column.name}"


def _id_text(column: Column) -> str:
    return f"CASE WHEN {quoted(_key(column))} IS NULL THEN {MISSING} ELSE coalesce({quoted(_id(column))}, {UNSEEN}) END"


def _identity(column: Column) -> str:
    return "value" if column.key == "string" else "key"


def _head(entries: "DataFrame", column: Column, head: int | None) -> "DataFrame":
    mine = entries.where(f"`column` = {text_literal(column.name)}")
    if head is not None:
        mine = mine.where(f"id < {first_vocabulary_id() + head}L")
    return mine.selectExpr(f"{_identity(column)} AS {quoted(_key(column))}", f"id AS {quoted(_id(column))}")


def _tails(entries: "DataFrame", large: Columns, heads: Mapping[str, int | None]) -> "DataFrame":
    """Return (place, key, value, tail_id) of what is not broadcast; ``place`` is the column's place in ``large``."""
    tests = [
        f"WHEN `column` = {text_literal(c.name)} AND id >= {first_vocabulary_id() + (heads[c.name] or 0)}L THEN {place}"
        for place, c in enumerate(large)
    ]
    placed = entries.selectExpr(f"CASE {' '.join(tests)} END AS place", "key", "value", "id AS tail_id")
    is_text = " OR ".join(f"place = {place}" for place, c in enumerate(large) if c.key == "string") or "false"
    # A number column's entries carry their text too; the open keys of its rows do not.
    return placed.where("place IS NOT NULL").selectExpr(
        "place", "coalesce(key, 0L) AS key", f"CASE WHEN {is_text} THEN value ELSE '' END AS value", "tail_id"
    )


def _join_tails(keyed: "DataFrame", large: Columns, tails: "DataFrame") -> "DataFrame":
    if "row_key" not in keyed.columns:
        raise ConfigError(
            f"columns {[c.name for c in large]} exceed broadcast_max_values and the frame has no row_key column to "
            f"bring ids back to their rows; raise broadcast_max_values or add row_key"
        )
    parts = [
        f"named_struct('place', {place}, 'key', {quoted(_key(c)) if c.key != 'string' else '0L'}, 'value', "
        f"{quoted(_key(c)) if c.key == 'string' else repr('')}, 'is_open', "
        f"{quoted(_key(c))} IS NOT NULL AND {quoted(_id(c))} IS NULL)"
        for place, c in enumerate(large)
    ]
    open_keys = keyed.selectExpr("row_key", f"explode(array({', '.join(parts)})) AS part").where("part.is_open")
    open_keys = open_keys.selectExpr("row_key", "part.place", "part.key", "part.value")
    found = open_keys.join(tails.hint("merge"), ["place", "key", "value"], "inner")
    spread = [f"CASE WHEN place = {place} THEN tail_id END AS tail_{place}" for place in range(len(large))]
    by_row = found.selectExpr("row_key", *spread).groupBy("row_key").max(*[f"tail_{p}" for p in range(len(large))])
    joined = keyed.join(by_row.hint("merge"), "row_key", "left")
    ids = {
        _id(c): f"coalesce({quoted(_id(c))}, `max(tail_{place})`) AS {quoted(_id(c))}" for place, c in enumerate(large)
    }
    return joined.selectExpr(*[ids.get(name, quoted(name)) for name in keyed.columns])
