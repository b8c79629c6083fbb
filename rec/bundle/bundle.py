"""A trained model on its own: raw values in, click probabilities out, with NumPy and onnxruntime alone.

Shapes: B batch, D dense features, F sparse features, E embedding_dim.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime

from rec.bundle.goldens import Goldens, load_goldens
from rec.bundle.layout import GOLDENS, MANIFEST, MODEL, PIPELINE, read_manifest, read_schema
from rec.core.errors import BundleError, IdRangeError, RequestError
from rec.core.manifest import sha256_file
from rec.core.values import Values
from rec.ops.pipeline import FittedPipeline


class Scores(NamedTuple):
    """Click probabilities and logits, float32, one per row."""

    prob_B: np.ndarray
    logit_B: np.ndarray


class Bundle:
    """An open bundle. The constructor trusts the files; ``open_bundle`` proves them first.

    ``threads`` is onnxruntime's intra-op thread count; its threads sleep rather than spin between runs.
    """

    def __init__(self, path: str | Path, threads: int = 1):
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        schema = read_schema(self.path)
        self.raw_schema, self.encoded_schema = schema.raw, schema.encoded
        self.threads = threads
        self.tables = {t.name: _open_table(self.path / t.file) for t in self.manifest.tables}
        by_feature = {f: t.name for t in self.manifest.tables for f in t.features}
        missing = [c.name for c in self.encoded_schema.sparse if c.name not in by_feature]
        if missing:
            raise BundleError(f"bundle {self.path}: no table for sparse feature {missing[0]!r}; export it again")
        self._feature_tables = [self.tables[by_feature[c.name]] for c in self.encoded_schema.sparse]
        self._bounds_F = np.array([len(t) for t in self._feature_tables], np.int64)
        self.fitted = FittedPipeline.load(self.path / PIPELINE)
        self._session = _open_session(self.path / MODEL, threads)

    @property
    def bundle_id(self) -> str:
        """sha256 of the manifest, which holds the sha256 of everything else."""
        return sha256_file(self.path / MANIFEST)

    @property
    def embedding_dim(self) -> int:
        return self.manifest.tables[0].embedding_dim if self.manifest.tables else 0

    @property
    def model_inputs(self) -> dict[str, tuple[str, list]]:
        """ONNX type and shape of each input of the dense graph."""
        return {i.name: (i.type, i.shape) for i in self._session.get_inputs()}

    def goldens(self) -> Goldens:
        return load_goldens(self.path / GOLDENS, self.raw_schema)

    def encode(self, raw: dict[str, Values]) -> tuple[np.ndarray, np.ndarray]:
        """Return (dense_BD float32, ids_BF int64) of raw columns by name; a missing value is marked, not left out."""
        wanted = [c.name for c in (*self.raw_schema.dense, *self.raw_schema.sparse)]
        absent = [name for name in wanted if name not in raw]
        if absent:
            raise RequestError(f"column {absent[0]!r} is not given; expected {wanted}, given {sorted(raw)}")
        encoded = self.fitted.replay({name: raw[name] for name in wanted})
        num_rows = len(next(iter(encoded.values())).data_B)
        dense_BD = np.empty((num_rows, len(self.encoded_schema.dense)), np.float32)
        ids_BF = np.empty((num_rows, len(self.encoded_schema.sparse)), np.int64)
        for position, column in enumerate(self.encoded_schema.dense):
            dense_BD[:, position] = encoded[column.name].data_B
        for position, column in enumerate(self.encoded_schema.sparse):
            ids_BF[:, position] = encoded[column.name].data_B
        return dense_BD, ids_BF

    def check_ids(self, ids_BF: np.ndarray) -> None:
        """Raise IdRangeError naming column, id and table size for an id outside its table."""
        outside_BF = (ids_BF < 0) | (ids_BF >= self._bounds_F)
        if outside_BF.any():
            row, position = np.argwhere(outside_BF)[0]
            raise IdRangeError(
                f"input 'ids': {self.encoded_schema.sparse[position].name} = {ids_BF[row, position]} in row {row}; "
                f"expected an id within [0, {self._bounds_F[position]}); encode with the bundle's own states"
            )

    def embed(self, ids_BF: np.ndarray) -> np.ndarray:
        """Return embedded_BFE float32. Raises IdRangeError where an id is outside its table; never clamps one."""
        self.check_ids(ids_BF)
        embedded_BFE = np.empty((len(ids_BF), len(self._feature_tables), self.embedding_dim), np.float32)
        for position, table in enumerate(self._feature_tables):
            # In range by the check above, so that "clip", which needs no buffer, clips nothing.
            np.take(table, ids_BF[:, position], axis=0, out=embedded_BFE[:, position], mode="clip")
        return embedded_BFE

    def score_encoded(self, dense_BD: np.ndarray, ids_BF: np.ndarray) -> Scores:
        """Score encoded rows (dense float32, ids int64) in one run of the dense graph."""
        self._check_encoded(dense_BD, ids_BF)
        embedded_BFE = self.embed(ids_BF)
        if not len(ids_BF):
            return Scores(np.empty(0, np.float32), np.empty(0, np.float32))
        (logit_B1,) = self._session.run(["logit"], {"dense": dense_BD, "embedded": embedded_BFE})
        logit_B = logit_B1[:, 0]
        # In float64: NumPy's float32 exp differs in the last place from one release to the next.
        with np.errstate(over="ignore"):
            prob_B = (1.0 / (1.0 + np.exp(-logit_B.astype(np.float64)))).astype(np.float32)
        return Scores(prob_B, logit_B)

    def score(self, raw: dict[str, Values]) -> Scores:
        """Score raw columns by name: the fitted transform, the tables, the dense graph, each run once."""
        return self.score_encoded(*self.encode(raw))

    def _check_encoded(self, dense_BD: np.ndarray, ids_BF: np.ndarray) -> None:
        wanted = {"dense": (np.float32, len(self.encoded_schema.dense)), "ids": (np.int64, len(self._feature_tables))}
        for (name, (dtype, width)), array in zip(wanted.items(), (dense_BD, ids_BF)):
            if array.dtype != dtype or array.ndim != 2 or array.shape[1] != width or len(array) != len(dense_BD):
                raise RequestError(
                    f"input {name!r}: expected {np.dtype(dtype)} [{len(dense_BD)}, {width}], "
                    f"given {array.dtype} {list(array.shape)}"
                )
        if not np.isfinite(dense_BD).all():
            row, position = np.argwhere(~np.isfinite(dense_BD))[0]
            raise RequestError(
                f"input 'dense': {self.encoded_schema.dense[position].name} = {dense_BD[row, position]} in row {row}; "
                "expected a finite number; send the fill value where one is missing"
            )


def _open_table(file: Path) -> np.ndarray:
    try:
        table = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise BundleError(f"bundle {file.parents[1]}: {file.name} cannot be read: {error}; export it again") from None
    # A plain view of the mapped file: np.take on a memmap makes a memmap of every result.
    return table.view(np.ndarray)


def _open_session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exception classes share no base but this one
        cause = " ".join(str(error).split())[:200]
        raise BundleError(f"bundle {file.parent}: {file.name} cannot be loaded: {cause}; export it again") from None
