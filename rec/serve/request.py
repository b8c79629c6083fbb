"""The form of a request: which arrays a model takes and gives, and how raw columns become them and come back.

``NAME`` takes raw values, ``NAME_encoded`` what the fitted transform makes of them. Shapes: B batch, D dense features,
F sparse features.
"""

import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rec.bundle.layout import BundleSchema
from rec.core.errors import RequestError
from rec.core.schema import FeatureSchema
from rec.core.values import Values

Kind = Literal["raw", "encoded"]
Arrays = dict[str, np.ndarray]
ENCODED_SUFFIX = "_encoded"
_INT64_END = 2.0**63
_LENGTH = struct.Struct("<I")

NUMPY_TYPES: dict[str, type] = {
    "FP32": np.float32,
    "FP64": np.float64,
    "INT64": np.int64,
    "BOOL": np.bool_,
    "BYTES": np.object_,
}


@dataclass(frozen=True)
class TensorSpec:
    """One input or output [B, width] by Triton's type name."""

    name: str
    datatype: str
    width: int
    optional: bool = False


def model_names(name: str) -> dict[Kind, str]:
    """Return the two model names that one bundle is served under."""
    return {"raw": name, "encoded": f"{name}{ENCODED_SUFFIX}"}


def input_specs(schema: BundleSchema, kind: Kind) -> list[TensorSpec]:
    """Return the inputs of a model, those of no columns left out."""
    if kind == "encoded":
        specs = [
            TensorSpec("dense", "FP32", len(schema.encoded.dense)),
            TensorSpec("ids", "INT64", len(schema.encoded.sparse)),
        ]
    else:
        width = len(schema.raw.dense)
        specs = [
            TensorSpec("dense", "FP64" if dense_is_float(schema.raw) else "INT64", width),
            TensorSpec("dense_missing", "BOOL", width, optional=True),
            TensorSpec("sparse", "BYTES", len(schema.raw.sparse)),
        ]
    return [s for s in specs if s.width]


def output_specs(schema: BundleSchema, kind: Kind) -> list[TensorSpec]:
    """Return the outputs of a model; the encoded ones are computed in any case and sent when asked for."""
    specs = [TensorSpec("prob", "FP32", 1), TensorSpec("logit", "FP32", 1)]
    if kind == "raw":
        specs += [
            TensorSpec("encoded_dense", "FP32", len(schema.encoded.dense)),
            TensorSpec("encoded_ids", "INT64", len(schema.encoded.sparse)),
        ]
    return [s for s in specs if s.width]


def dense_is_float(raw: FeatureSchema) -> bool:
    return any(c.dtype.startswith("float") for c in raw.dense)


def to_arrays(columns: dict[str, Values], raw: FeatureSchema) -> Arrays:
    """Return the inputs of the raw model for columns by name; a missing sparse value becomes empty bytes."""
    arrays: Arrays = {}
    wanted = [c.name for c in (*raw.dense, *raw.sparse)]
    absent = [name for name in wanted if name not in columns]
    if absent:
        raise RequestError(f"column {absent[0]!r} is not given; expected {wanted}, given {sorted(columns)}")
    num_rows = len(columns[wanted[0]].data_B)
    if raw.dense:
        dtype = np.float64 if dense_is_float(raw) else np.int64
        arrays["dense"] = np.empty((num_rows, len(raw.dense)), dtype)
        arrays["dense_missing"] = np.empty((num_rows, len(raw.dense)), bool)
    if raw.sparse:
        arrays["sparse"] = np.empty((num_rows, len(raw.sparse)), object)
    for position, column in enumerate(raw.dense):
        values = columns[column.name]
        arrays["dense"][:, position] = np.where(values.missing_B, 0, values.data_B)
        arrays["dense_missing"][:, position] = values.missing_B
    for position, column in enumerate(raw.sparse):
        values = columns[column.name]
        arrays["sparse"][:, position] = np.where(values.missing_B, b"", values.data_B)
    return arrays


def to_columns(arrays: Arrays, raw: FeatureSchema) -> dict[str, Values]:
    """Return columns by name of the raw model's inputs. Raises RequestError for NaN, infinity or a broken number."""
    columns: dict[str, Values] = {}
    for position, column in enumerate(raw.dense):
        data_B = arrays["dense"][:, position]
        missing_B = arrays["dense_missing"][:, position] if "dense_missing" in arrays else np.zeros(len(data_B), bool)
        if data_B.dtype == np.float64:
            data_B = _checked_floats(np.where(missing_B, 0.0, data_B), column.name, column.dtype)
        columns[column.name] = Values(np.where(missing_B, 0, data_B).astype(data_B.dtype), missing_B)
    for position, column in enumerate(raw.sparse):
        data_B = arrays["sparse"][:, position]
        columns[column.name] = Values(data_B, ~data_B.astype(bool))
    return columns


def pack_bytes(values: np.ndarray) -> bytes:
    """Return an object array of bytes as Triton sends it: each value behind its length, a little-endian uint32.

    Raises TypeError for a value that is not bytes. An eighth of the time of tritonclient's serialize_byte_tensor,
    which looks at one value at a time.
    """
    flat = values.ravel().tolist()
    lengths = list(map(len, flat))
    prefixes = {length: _LENGTH.pack(length) for length in set(lengths)}
    parts = [b""] * (2 * len(flat))
    parts[0::2] = map(prefixes.__getitem__, lengths)
    parts[1::2] = flat
    packed = b"".join(parts)
    if len(packed) != sum(lengths) + _LENGTH.size * len(flat):
        raise TypeError("a value's length is not its number of bytes")
    return packed


def unpack_bytes(packed: np.ndarray) -> np.ndarray:
    """Return the values of ``pack_bytes`` as a flat object array. Raises ValueError where they end early."""
    data, end, offset = packed.tobytes(), packed.nbytes, 0
    values: list[bytes] = []
    append, length_at = values.append, _LENGTH.unpack_from
    try:
        while offset < end:
            start = offset + 4
            offset = start + length_at(data, offset)[0]
            append(data[start:offset])
    except struct.error:
        offset = end + 1
    if offset != end:
        raise ValueError(f"the last of {len(values)} values needs more than the {end} bytes given")
    return np.array(values, object)


def check_finite(name: str, array: np.ndarray, columns: list[str]) -> None:
    """Raise RequestError with the first NaN or infinity of a floating-point input."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, position = np.argwhere(~np.isfinite(array))[0]
        raise RequestError(
            f"input {name!r}: {columns[position]} = {array[row, position]} in row {row}; expected a finite number; "
            "mark a missing value as missing, or send the fill value"
        )


def _checked_floats(data_B: np.ndarray, name: str, dtype: str) -> np.ndarray:
    check_finite("dense", data_B[:, None], [name])
    if dtype.startswith("float"):
        return data_B.astype(dtype)
    broken = (data_B != np.trunc(data_B)) | (np.abs(data_B) > _INT64_END)
    if broken.any():
        row = int(np.argmax(broken))
        raise RequestError(f"input 'dense': {name} = {data_B[row]} in row {row}; expected an integer of 64 bits")
    # The float nearest to int64's last number is one above it.
    past_B = data_B == _INT64_END
    return np.where(past_B, np.iinfo(np.int64).max, np.where(past_B, 0, data_B).astype(np.int64))
