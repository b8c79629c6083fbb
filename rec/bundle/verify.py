"""Proof of a bundle before it is used: digests, shapes, finite weights, state id, and its goldens reproduced."""

from pathlib import Path

import numpy as np

from rec.bundle.bundle import Bundle
from rec.bundle.goldens import Goldens, table_digest
from rec.bundle.layout import LOGIT_TOLERANCE, MANIFEST, MODEL, BundleManifest, read_manifest
from rec.bundle.onnx_weights import float_weights
from rec.core.errors import BundleError, RecError
from rec.core.manifest import digest_folder
from rec.core.schema import FeatureSchema

_BLOCK_ROWS = 1 << 16
# log(1 + x) of the largest int64 is 43.7.
_ORDINARY_DENSE = 50.0


def open_bundle(path: str | Path, threads: int = 1) -> Bundle:
    """Open a bundle after proving it. Raises BundleError naming the file, column or row that does not hold."""
    verify_files(path, read_manifest(path))
    bundle = Bundle(path, threads)
    goldens = bundle.goldens()
    verify_tables(bundle, goldens)
    verify_model(bundle)
    verify_state(bundle)
    verify_goldens(bundle, goldens)
    return bundle


def verify_files(path: str | Path, manifest: BundleManifest) -> None:
    """Compare every file of the folder with the manifest."""
    found = digest_folder(path, skip=frozenset({MANIFEST}))
    for name in sorted({*found, *manifest.files}):
        if name not in found:
            raise BundleError(f"bundle {path}: {name} is gone; export it again")
        if name not in manifest.files:
            raise BundleError(f"bundle {path}: {name} is not in {MANIFEST}; remove it or export again")
        expected, given = manifest.files[name].sha256, found[name].sha256
        if expected != given:
            raise BundleError(
                f"bundle {path}: {name} was changed: sha256 {given[:16]}…, {MANIFEST} says {expected[:16]}…; "
                "export it again"
            )


def verify_tables(bundle: Bundle, goldens: Goldens) -> None:
    """Check each table's type and shape against manifest and schema, its numbers, and the trainer's digest."""
    for entry in bundle.manifest.tables:
        table = bundle.tables[entry.name]
        where = f"bundle {bundle.path}: table {entry.name} ({entry.file})"
        expected = (entry.num_embeddings, entry.embedding_dim)
        if table.shape != expected or table.dtype != np.float32:
            raise BundleError(
                f"{where}: {table.dtype} {list(table.shape)}, expected float32 {list(expected)}; export it again"
            )
        for feature in entry.features:
            num_embeddings = bundle.encoded_schema[feature].num_embeddings
            if num_embeddings is None or num_embeddings > len(table):
                raise BundleError(f"{where}: {len(table)} rows, {feature} has {num_embeddings} ids; export it again")
        for start in range(0, len(table), _BLOCK_ROWS):
            finite = np.isfinite(table[start : start + _BLOCK_ROWS]).all(axis=1)
            if not finite.all():
                row = start + int(np.argmin(finite))
                raise BundleError(f"{where}: row {row} holds a NaN or infinity; the training diverged, train again")
        if table_digest(table) != goldens.table_sha256.get(entry.name):
            raise BundleError(f"{where}: its rows are not those the trainer had, or not in its order; export it again")


def verify_model(bundle: Bundle) -> None:
    """Check the dense graph's inputs against the schema and every weight for NaN and infinity."""
    where = f"bundle {bundle.path}: {MODEL}"
    widths = {
        "dense": [len(bundle.encoded_schema.dense)],
        "embedded": [len(bundle.encoded_schema.sparse), bundle.embedding_dim],
    }
    for name, expected in widths.items():
        kind, shape = bundle.model_inputs.get(name, ("nothing", []))
        if kind != "tensor(float)" or shape[1:] != expected:
            raise BundleError(
                f"{where}: input {name!r} is {kind} {shape}, expected tensor(float) [batch, "
                f"{', '.join(map(str, expected))}]; export it again"
            )
    try:
        for name, values in float_weights((bundle.path / MODEL).read_bytes()):
            if not np.isfinite(values).all():
                raise BundleError(f"{where}: weight {name} holds a NaN or infinity; the training diverged, train again")
    except BundleError:
        raise
    except ValueError as error:
        raise BundleError(f"{where}: weights cannot be read: {error}; export it again") from None


def verify_state(bundle: Bundle) -> None:
    """Compare the states' own id with the one the manifest names."""
    if bundle.fitted.state_id != bundle.manifest.state_id:
        raise BundleError(
            f"bundle {bundle.path}: pipeline has state {bundle.fitted.state_id[:16]}…, {MANIFEST} says "
            f"{bundle.manifest.state_id[:16]}…; export it again"
        )


def verify_goldens(bundle: Bundle, goldens: Goldens) -> None:
    """Reproduce every golden row: ids exactly, dense within one unit in the last place, logits within tolerance."""
    try:
        dense_ND, ids_NF = bundle.encode(goldens.raw)
        logits_N = bundle.score_encoded(goldens.dense_ND, goldens.ids_NF).logit_B
    except RecError as error:
        raise BundleError(f"bundle {bundle.path}: goldens cannot be scored: {error}") from None
    where = f"bundle {bundle.path}"
    compare_encoded(where, bundle.encoded_schema, (dense_ND, ids_NF), goldens)
    compare_logits(where, logits_N, goldens)


def compare_encoded(where: str, encoded: FeatureSchema, rows: tuple[np.ndarray, np.ndarray], goldens: Goldens) -> None:
    """Raise BundleError where (dense, ids) of the golden rows are not those Spark made of them."""
    dense_ND, ids_NF = rows
    _refuse(where, [c.name for c in encoded.sparse], ids_NF, goldens.ids_NF, ids_NF != goldens.ids_NF)
    unit_ND = np.spacing(np.abs(goldens.dense_ND))
    bad_ND = ~(np.abs(dense_ND - goldens.dense_ND) <= unit_ND)
    _refuse(where, [c.name for c in encoded.dense], dense_ND, goldens.dense_ND, bad_ND)


def compare_logits(where: str, logits_N: np.ndarray, goldens: Goldens) -> None:
    """Raise BundleError where a golden row's logit is not the trainer's."""
    bad_N = ~logits_agree(logits_N, goldens.logits_N, goldens.dense_ND)
    _refuse(where, ["logit"], logits_N[:, None], goldens.logits_N[:, None], bad_N[:, None])


def logits_agree(given_B: np.ndarray, expected_B: np.ndarray, dense_BD: np.ndarray) -> np.ndarray:
    """Return where two logits of the same rows differ by no more than float32 rounding; NaN agrees with nothing.

    A row with dense numbers beyond ±50, such as int64's ends normalized, is given room in proportion: sums of such
    terms cancel, and what remains depends on their order.
    """
    difference_B = np.abs(given_B.astype(np.float64) - expected_B.astype(np.float64))
    room_B = np.maximum(1.0, np.abs(dense_BD.astype(np.float64)).max(axis=1, initial=0.0) / _ORDINARY_DENSE)
    return difference_B <= LOGIT_TOLERANCE * (1 + np.abs(expected_B.astype(np.float64))) * room_B


def _refuse(where: str, names: list[str], given: np.ndarray, expected: np.ndarray, bad: np.ndarray) -> None:
    if bad.any():
        row, position = np.argwhere(bad)[0]
        raise BundleError(
            f"{where}: golden row {row}: {names[position]} = {given[row, position]}, expected "
            f"{expected[row, position]} ({int(bad.sum())} of {bad.size} differ); export it again"
        )
