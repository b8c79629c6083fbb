"""Golden rows: raw values, what Spark made of them, and the logits the trainer computed from that.

Serving code reproduces them; it never writes them. ``table_sha256`` holds digests of the trainer's own tensors, so a
table whose rows were moved is found out even where no golden row reads the moved ones.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rec.core.errors import BundleError
from rec.core.ids import MISSING, UNSEEN, first_vocabulary_id
from rec.core.manifest import write_atomic
from rec.core.schema import FeatureSchema
from rec.core.values import Values

MIN_ROWS = 256
_INT64 = np.iinfo(np.int64)
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Goldens:
    """``raw`` by raw column name, then the encoded rows and the trainer's logits of them."""

    raw: dict[str, Values]
    dense_ND: np.ndarray
    ids_NF: np.ndarray
    logits_N: np.ndarray
    table_sha256: dict[str, str]

    @property
    def num_rows(self) -> int:
        return len(self.logits_N)


def table_digest(table: np.ndarray) -> str:
    """Return the sha256 of a float32 table's rows in id order, whatever file holds them."""
    digest = hashlib.sha256()
    for start in range(0, len(table), _BLOCK_ROWS):
        digest.update(np.ascontiguousarray(table[start : start + _BLOCK_ROWS], "<f4").data)
    return digest.hexdigest()


def save_goldens(goldens: Goldens, folder: str | Path) -> None:
    """Write goldens without pickle: raw values as JSON (int64 stays exact), the rest as .npy."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    raw = {name: _to_json(values) for name, values in goldens.raw.items()}
    write_atomic(folder / "raw.json", json.dumps(raw, allow_nan=False))
    write_atomic(folder / "tables.json", json.dumps(goldens.table_sha256, sort_keys=True))
    np.save(folder / "dense.npy", np.asarray(goldens.dense_ND, np.float32), allow_pickle=False)
    np.save(folder / "ids.npy", np.asarray(goldens.ids_NF, np.int64), allow_pickle=False)
    np.save(folder / "logits.npy", np.asarray(goldens.logits_N, np.float32), allow_pickle=False)


def load_goldens(folder: str | Path, schema: FeatureSchema) -> Goldens:
    """Read goldens; ``schema`` tells the type of each raw column."""
    folder = Path(folder)
    try:
        raw = json.loads((folder / "raw.json").read_text(encoding="utf-8"))
        arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("dense", "ids", "logits")}
        digests = json.loads((folder / "tables.json").read_text(encoding="utf-8"))
        values = {c.name: _from_json(raw[c.name], c.role == "sparse", c.dtype) for c in (*schema.dense, *schema.sparse)}
    except (OSError, ValueError, KeyError) as error:
        raise BundleError(f"bundle {folder.parent}: goldens cannot be read: {error!r}; export it again") from None
    goldens = Goldens(values, arrays["dense"], arrays["ids"], arrays["logits"], digests)
    lengths = {len(goldens.dense_ND), len(goldens.ids_NF), *(len(v.data_B) for v in values.values())}
    if lengths - {goldens.num_rows} or goldens.num_rows < MIN_ROWS:
        raise BundleError(
            f"bundle {folder.parent}: goldens hold {sorted({goldens.num_rows, *lengths})} rows, expected one number "
            f"of at least {MIN_ROWS}; export it again"
        )
    return goldens


def check_coverage(goldens: Goldens, raw: FeatureSchema, encoded: FeatureSchema) -> None:
    """Refuse goldens that leave out an edge: missing, unseen, first and last id of a table, negatives, int64 ends."""
    for column, ids_N in zip(encoded.sparse, goldens.ids_NF.T):
        assert column.num_embeddings is not None, column
        last = column.num_embeddings - 1
        for id_ in sorted({MISSING, UNSEEN, min(first_vocabulary_id(), last), last}):
            if id_ not in ids_N:
                raise BundleError(
                    f"goldens: no row has {column.name} = {id_} of ids 1 … {last}; write the feature table again"
                )
    for column in raw.dense:
        values = goldens.raw[column.name]
        present = values.data_B[~values.missing_B]
        wanted = {"missing": values.missing_B.any(), "negative": (present < 0).any()}
        if column.dtype == "int64":
            wanted |= {str(end): (present == end).any() for end in (_INT64.min, _INT64.max)}
        absent = [kind for kind, found in wanted.items() if not found]
        if absent:
            raise BundleError(f"goldens: no row has {column.name} {absent[0]}; write the feature table again")


def _to_json(values: Values) -> list[int | float | str | None]:
    items = values.data_B.tolist()
    texts = [v.decode("utf-8") if isinstance(v, bytes) else v for v in items]
    return [None if missing else v for v, missing in zip(texts, values.missing_B)]


def _from_json(items: list[int | float | str | None], is_bytes: bool, dtype: str) -> Values:
    missing = np.fromiter((v is None for v in items), bool, len(items))
    if not is_bytes:
        return Values(np.array([0 if v is None else v for v in items], dtype), missing)
    data = np.empty(len(items), object)
    data[:] = [b"" if v is None else str(v).encode() for v in items]
    return Values(data, missing)
