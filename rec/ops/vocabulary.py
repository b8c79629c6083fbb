"""The fitted values of categorical columns: sorted arrays to look up in, or a table where they are too many."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rec.core.errors import BundleError
from rec.core.ids import UNSEEN, first_vocabulary_id
from rec.core.keys import KeyKind
from rec.ops.op import State

_PREFIX_BYTES = 8


@dataclass(frozen=True)
class TableState:
    """Rows of a Delta table at a version, in the place of arrays that would not fit a machine."""

    uri: str
    version: int
    num_rows: int


@dataclass(frozen=True)
class NumberKeys:
    """``keys_V`` int64 ascending, ``ids_V`` beside them."""

    keys_V: np.ndarray
    ids_V: np.ndarray

    def look_up(self, keys_B: np.ndarray) -> np.ndarray:
        """Return the int64 ids; what is not in the vocabulary is UNSEEN, never its neighbour."""
        if not len(self.keys_V):
            return np.full(len(keys_B), UNSEEN, np.int64)
        place_B = np.minimum(np.searchsorted(self.keys_V, keys_B), len(self.keys_V) - 1)
        return np.where(self.keys_V[place_B] == keys_B, self.ids_V[place_B], UNSEEN).astype(np.int64)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"keys": self.keys_V, "ids": self.ids_V}


@dataclass(frozen=True)
class TextKeys:
    """Byte strings ascending, end to end in ``blob``: value v is blob[offsets_W[v]:offsets_W[v + 1]], W = V + 1.

    ``prefixes_V`` hold each value's first eight bytes as a big-endian number: a search over numbers leaves only the
    values that share them to compare.
    """

    blob: np.ndarray
    offsets_W: np.ndarray
    prefixes_V: np.ndarray
    ids_V: np.ndarray

    @classmethod
    def from_values(cls, values: list[bytes], ids_V: np.ndarray) -> "TextKeys":
        order = sorted(range(len(values)), key=values.__getitem__)
        ordered = [values[i] for i in order]
        offsets_W = np.concatenate([[0], np.cumsum([len(v) for v in ordered], dtype=np.int64)]).astype(np.int64)
        blob = np.frombuffer(b"".join(ordered), np.uint8)
        return cls(blob, offsets_W, _prefixes(ordered), np.asarray(ids_V)[order])

    def look_up(self, keys_B: np.ndarray) -> np.ndarray:
        """Return the int64 ids of an object array of bytes; what is not in the vocabulary is UNSEEN."""
        prefixes_B = _prefixes(keys_B)
        first_B = np.searchsorted(self.prefixes_V, prefixes_B, "left").tolist()
        last_B = np.searchsorted(self.prefixes_V, prefixes_B, "right").tolist()
        places = (self._place(key, low, high) for key, low, high in zip(keys_B, first_B, last_B))
        return np.fromiter((UNSEEN if p < 0 else self.ids_V[p] for p in places), np.int64, len(keys_B))

    def arrays(self) -> dict[str, np.ndarray]:
        return {"blob": self.blob, "offsets": self.offsets_W, "prefixes": self.prefixes_V, "ids": self.ids_V}

    def values(self) -> list[bytes]:
        return [self._value(place) for place in range(len(self.ids_V))]

    def _place(self, key: bytes, low: int, high: int) -> int:
        end = high
        while low < high:
            middle = (low + high) // 2
            if self._value(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < end and self._value(low) == key else -1

    def _value(self, place: int) -> bytes:
        return self.blob[self.offsets_W[place] : self.offsets_W[place + 1]].tobytes()


def _prefixes(values: Any) -> np.ndarray:
    padded = b"".join([v[:_PREFIX_BYTES].ljust(_PREFIX_BYTES, b"\0") for v in values])
    return np.frombuffer(padded, ">u8").astype(np.uint64)


@dataclass(frozen=True)
class ColumnVocabulary:
    """One column: ``num_values`` counts every id given, ``sha256`` is of (id, value); ``keys`` is None in a table."""

    kind: KeyKind
    num_values: int
    sha256: str
    keys: NumberKeys | TextKeys | None = None

    @property
    def num_embeddings(self) -> int:
        return first_vocabulary_id() + self.num_values


@dataclass(frozen=True)
class VocabularyState(State):
    """The vocabularies of an operator's columns, and the table that holds them where they were committed to one."""

    columns: dict[str, ColumnVocabulary]
    table: TableState | None = None

    def canonical(self) -> Any:
        return {name: [c.kind, c.num_values, c.sha256] for name, c in self.columns.items()}

    def to_json(self) -> dict[str, Any]:
        columns = {
            name: {"kind": c.kind, "num_values": c.num_values, "sha256": c.sha256, "in_table": c.keys is None}
            for name, c in self.columns.items()
        }
        return {"columns": columns, "table": self.table and asdict(self.table)}

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{place}.{part}": array
            for place, name in enumerate(sorted(self.columns))
            if (keys := self.columns[name].keys) is not None
            for part, array in keys.arrays().items()
        }

    def look_up(self, name: str, keys_B: np.ndarray) -> np.ndarray:
        """Return the ids of a column's keys. Raises BundleError where its values stand in a table only."""
        keys = self.columns[name].keys
        if keys is None:
            raise BundleError(
                f"column {name!r}: its {self.columns[name].num_values} values stand in {self.table}, not in arrays; "
                f"read them with rec.etl.vocabulary.with_all_arrays first"
            )
        return keys.look_up(keys_B)


def load_vocabulary(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> VocabularyState:
    """Return the state stored by ``to_json`` and ``arrays``."""
    columns = {
        name: ColumnVocabulary(
            stored["kind"], stored["num_values"], stored["sha256"], _stored_keys(stored, place, arrays)
        )
        for place, (name, stored) in enumerate(sorted(content["columns"].items()))
    }
    return VocabularyState(columns, content["table"] and TableState(**content["table"]))


def _stored_keys(stored: dict[str, Any], place: int, arrays: dict[str, np.ndarray]) -> NumberKeys | TextKeys | None:
    if stored["in_table"]:
        return None
    parts = ("blob", "offsets", "prefixes", "ids") if stored["kind"] == "string" else ("keys", "ids")
    found = [arrays[f"{place}.{part}"] for part in parts]
    return TextKeys(*found) if stored["kind"] == "string" else NumberKeys(*found)
