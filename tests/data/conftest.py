"""A table of chosen days, files and row groups."""

import pytest
from made_features import encoded_rows, open_table, write_file

from rec.core.tables import FeatureTable


@pytest.fixture
def write_table(tmp_path):
    """Return a function from {day: [[rows of each row group] of each file]} to a table of consecutive row keys."""

    def write(days: dict[int, list[list[int]]], name: str = "features") -> FeatureTable:
        first = 0
        for day, files in days.items():
            for position, sizes in enumerate(files):
                groups = []
                for size in sizes:
                    groups.append(encoded_rows(first, size))
                    first += size
                write_file(tmp_path / name / f"day={day}" / f"part-{position}.parquet", groups)
        return open_table(tmp_path / name)

    return write
