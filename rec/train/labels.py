"""Both labels must occur, or nothing is learned and no AUC exists: told before the first step."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from rec.core.errors import TrainingError
from rec.core.tables import Days, FeatureTable, Ranks
from rec.data.snapshot import list_files, unreadable_error


def require_both_labels(table: FeatureTable, days: Days, ranks: Ranks) -> None:
    """Raise TrainingError, on every rank, where the train or the valid days hold one label only.

    Rank 0 reads the label column until it has seen both, mostly of one row group.
    """
    found = None
    if ranks.rank == 0:
        found = one_label(table, "train", days.train) or one_label(table, "valid", days.valid)
    message = ranks.all_gather(found)[0]
    if message:
        raise TrainingError(message)


def one_label(table: FeatureTable, role: str, days: Sequence[int]) -> str | None:
    """Return what is wrong where the labelled rows of some days all have one label; None where both occur."""
    if not days:
        return None
    filesystem, files = list_files(table.uri, table.version, days)
    labels: set[float] = set()
    num_rows = 0
    for file in files:
        try:
            found, counted = _labels_of(filesystem, file.path, table.schema.label.name)
        except (pa.ArrowException, OSError) as error:
            raise unreadable_error(file.path, error) from None
        labels |= found
        num_rows += counted
        if len(labels) > 1:
            return None
    if not labels:
        return None
    return (
        f"days.{role} {list(days)}: all {num_rows} labelled rows have label {labels.pop():g}; both 0 and 1 are needed, "
        f"name other days"
    )


def _labels_of(filesystem: FileSystem, path: str, label: str) -> tuple[set[float], int]:
    """Return the least and greatest label of a file and its number of labelled rows."""
    labels: set[float] = set()
    num_rows = 0
    with pq.ParquetFile(filesystem.open_input_file(path)) as parquet:
        for group in range(parquet.num_row_groups):
            values = parquet.read_row_group(group, columns=[label]).column(0)
            extremes = pc.min_max(values).as_py()
            labels |= {v for v in extremes.values() if v is not None}
            num_rows += len(values) - values.null_count
            if len(labels) > 1:
                break
    return labels, num_rows
