"""The table ``goldens`` of a root: raw rows beside what Spark made of them.

Shapes: N golden rows, D dense features, F sparse features.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from rec.bundle.layout import BundleSchema
from rec.core.errors import BundleError
from rec.core.schema import Column
from rec.core.values import Values

RAW_PREFIX = "raw_"
_ORDER = "golden_id"


@dataclass(frozen=True, kw_only=True)
class GoldenRows:
    """Raw columns by name and what Spark made of them."""

    raw: dict[str, Values]
    dense_ND: np.ndarray
    ids_NF: np.ndarray


def read_golden_rows(root: str, state_id: str, schema: BundleSchema) -> GoldenRows:
    """Return the golden rows of a state in order. Raises BundleError where it has none or a column is not there."""
    uri = f"{root}/goldens"
    table = _read(uri, state_id)
    raw = [*schema.raw.dense, *schema.raw.sparse]
    wanted = [_ORDER, *(f"{RAW_PREFIX}{c.name}" for c in raw), *schema.encoded.names]
    absent = [name for name in wanted if name not in table.column_names]
    if absent:
        raise BundleError(f"{uri}: no column {absent[0]!r}, it has {table.column_names}; write the feature table again")
    if not table.num_rows:
        raise BundleError(f"{uri}: no rows of state {state_id[:16]}…; write the feature table with these states again")
    arrays = {name: table.column(name).combine_chunks() for name in wanted}
    dense = [arrays[c.name].to_numpy(zero_copy_only=False).astype(np.float32) for c in schema.encoded.dense]
    ids = [arrays[c.name].to_numpy(zero_copy_only=False).astype(np.int64) for c in schema.encoded.sparse]
    return GoldenRows(
        raw={c.name: _values(arrays[f"{RAW_PREFIX}{c.name}"], c) for c in raw},
        dense_ND=np.stack(dense, 1),
        ids_NF=np.stack(ids, 1),
    )


def _read(uri: str, state_id: str) -> pa.Table:
    try:
        table = DeltaTable(uri)
    except DeltaError as error:
        cause = " ".join(str(error).split())
        raise BundleError(f"{uri}: no table of golden rows ({cause}); write the feature table again") from None
    # By query and not by to_pyarrow_table, after which a process that read from S3 may abort at its exit.
    query = f"SELECT * FROM goldens WHERE state_id = '{state_id}' ORDER BY {_ORDER}"
    return pa.table(QueryBuilder().register("goldens", table).execute(query))


def _values(array: pa.Array, column: Column) -> Values:
    missing_N = array.is_null().to_numpy(zero_copy_only=False)
    if column.role == "dense":
        return Values(array.fill_null(0).to_numpy(zero_copy_only=False).astype(column.dtype), missing_N)
    data_N = np.empty(len(array), object)
    data_N[:] = [b"" if v is None else str(v).encode() for v in array.to_pylist()]
    return Values(data_N, missing_N | np.fromiter((not v for v in data_N), bool, len(data_N)))
