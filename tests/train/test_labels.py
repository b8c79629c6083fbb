"""Both labels, looked for before the first step."""

from pathlib import Path

import pytest
from planted_table import planted_day, write_table

from rec.core.errors import TableError
from rec.train.labels import one_label


def test_a_damaged_page_is_told_with_its_file(tmp_path):
    table = write_table(tmp_path / "features", planted_day(0, 600))
    assert one_label(table, "train", (0,)) is None
    [file] = Path(table.uri).rglob("*.parquet")
    content = bytearray(file.read_bytes())
    # Every page, and not the footer.
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:end] = bytes(end - 4)
    file.write_bytes(content)
    with pytest.raises(TableError, match=rf"{file.name}: is not a whole Parquet file .*; write its day again"):
        one_label(table, "train", (0,))
