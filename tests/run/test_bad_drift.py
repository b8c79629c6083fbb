"""A source that loses or retypes a column between two runs on one root is refused; what was written stays."""

import copy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from refusal import refusal
from small_road import RECIPE

from rec.cli import main
from rec.etl.features import open_features

NUM_ROWS = 80


class Runs:
    """A recipe over ``folder/raw``, which every run may find changed."""

    def __init__(self, folder: Path, source: dict, columns: dict):
        self.folder, self.root, self.raw = folder, folder / "lake", folder / "raw"
        self.raw.mkdir()
        self.content = copy.deepcopy(RECIPE)
        self.content["root"] = str(self.root)
        self.content["source"] = {"path": str(self.raw), "day": {"path": r"day_(\d+)"}, **source}
        self.content["days"] = {"train": [0]}
        self.content["features"]["dense"]["columns"] = columns["dense"]
        self.content["features"]["sparse"]["columns"] = columns["sparse"]
        self.recipe = folder / "recipe.yaml"

    def write(self) -> Path:
        self.recipe.write_text(yaml.safe_dump(self.content))
        return self.recipe

    def tables(self) -> list[str]:
        """Every file of a table below the root."""
        names = (p.relative_to(self.root) for p in self.root.rglob("*") if p.is_file())
        return sorted(str(n) for n in names if n.parts[0] not in ("runs", "staging", "work"))

    def refused(self, capsys) -> str:
        before, table = self.tables(), open_features(self.root)
        line = refusal(capsys, "etl", self.write())
        assert self.tables() == before
        assert open_features(self.root) == table
        return line


def write_text(path: Path, columns: dict[str, list]) -> None:
    rows = zip(*columns.values())
    path.write_text("\n".join([",".join(columns), *[",".join(map(str, row)) for row in rows]]) + "\n")


def text_columns() -> dict[str, list]:
    numbers = range(NUM_ROWS)
    return {
        "label": [k % 2 for k in numbers],
        "I1": [k % 7 for k in numbers],
        "I2": [k % 5 for k in numbers],
        "C1": [f"{k % 4:08x}" for k in numbers],
        "C2": [f"{k % 3:08x}" for k in numbers],
    }


@pytest.fixture(scope="module")
def text_runs(tmp_path_factory, spark) -> Runs:
    runs = Runs(tmp_path_factory.mktemp("text"), {"layout": "criteo"}, {"dense": "I*", "sparse": "C*"})
    write_text(runs.raw / "day_0.csv", text_columns())
    assert main(["etl", str(runs.write())]) == 0
    return runs


@pytest.mark.parametrize("gone", ["I2", "C2"])
def test_text_that_lost_a_column(text_runs, capsys, gone):
    columns = text_columns()
    del columns[gone]
    write_text(text_runs.raw / "day_0.csv", columns)
    line = text_runs.refused(capsys)
    assert f"column {gone!r} is gone from the source, days [0] under {text_runs.root} were made with it" in line
    assert "supply it, empty where nothing is known, or use another root" in line


def test_text_whose_number_became_a_word(text_runs, capsys):
    columns = text_columns()
    columns["I2"] = [f"n{k}" for k in columns["I2"]]
    write_text(text_runs.raw / "day_0.csv", columns)
    line = text_runs.refused(capsys)
    assert f"{text_runs.raw}/day_0.csv:2: int:I2, the first of {NUM_ROWS} quarantined" in line


def test_text_whose_hash_became_a_word(text_runs, capsys):
    columns = text_columns()
    columns["C2"] = ["blue"] * NUM_ROWS
    write_text(text_runs.raw / "day_0.csv", columns)
    assert "cat:C2" in text_runs.refused(capsys)


def test_a_later_file_that_lost_a_column(text_runs, capsys):
    write_text(text_runs.raw / "day_0.csv", text_columns())
    columns = text_columns()
    del columns["C2"]
    write_text(text_runs.raw / "day_1.csv", columns)
    try:
        line = text_runs.refused(capsys)
    finally:
        (text_runs.raw / "day_1.csv").unlink()
    assert f"{text_runs.raw}/day_1.csv: column 'C2' is gone, {text_runs.raw}/day_0.csv has it" in line


def parquet_columns() -> dict[str, pa.Array]:
    numbers = np.arange(NUM_ROWS)
    return {
        "click": pa.array(numbers % 2),
        "price": pa.array(numbers % 7),
        "user": pa.array(numbers % 5),
        "city": pa.array([f"city {k % 3}" for k in numbers]),
    }


@pytest.fixture(scope="module")
def parquet_runs(tmp_path_factory, spark) -> Runs:
    columns = {"label": "click", "dense": ["price"], "sparse": {"user": "int64", "city": "string"}}
    source = {"layout": "parquet", "columns": columns}
    runs = Runs(tmp_path_factory.mktemp("parquet"), source, {"dense": ["price"], "sparse": ["user", "city"]})
    pq.write_table(pa.table(parquet_columns()), runs.raw / "day_0.parquet")
    assert main(["etl", str(runs.write())]) == 0
    return runs


def text_of(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


PARQUET = {
    "price gone": ("price", None, "no file has column 'price', read as dense; correct source.columns"),
    "city gone": ("city", None, "no file has column 'city', read as string; correct source.columns"),
    "price to float": ("price", lambda a: a.cast(pa.float64()), "column 'price' is float64 in the source, days [0]"),
    "price to text": ("price", text_of, "column 'price' is text, read as dense, which takes integer or float"),
    "user to text": ("user", text_of, "column 'user' is text, read as int64, which takes integer"),
    "city to number": ("city", lambda a: pa.array(range(len(a))), "column 'city' is integer, read as string"),
    "label to float": ("click", lambda a: a.cast(pa.float64()), "column 'click' is float, read as label"),
}


@pytest.mark.parametrize("change", PARQUET)
def test_parquet_that_lost_or_retyped_a_column(parquet_runs, capsys, change):
    name, retyped, expected = PARQUET[change]
    columns = parquet_columns()
    column = columns.pop(name)
    if retyped is not None:
        columns[name] = retyped(column)
    pq.write_table(pa.table(columns), parquet_runs.raw / "day_0.parquet")
    assert expected in parquet_runs.refused(capsys)


def test_a_key_of_another_kind(parquet_runs, capsys):
    """The recipe retypes the column where the file does not: its ids would change their meaning."""
    columns = parquet_columns()
    columns["city"] = pa.array([f"{k % 3:08x}" for k in range(NUM_ROWS)])
    pq.write_table(pa.table(columns), parquet_runs.raw / "day_0.parquet")
    parquet_runs.content["source"]["columns"]["sparse"]["city"] = "hex32"
    try:
        line = parquet_runs.refused(capsys)
    finally:
        parquet_runs.content["source"]["columns"]["sparse"]["city"] = "string"
    assert "column 'city' is string (hex32) in the source, days [0]" in line
    assert "were made of string (string); write it with that type, or use another root" in line


def test_an_integer_of_another_width_is_no_drift(parquet_runs):
    columns = parquet_columns()
    columns["price"] = columns["price"].cast(pa.int16())
    pq.write_table(pa.table(columns), parquet_runs.raw / "day_0.parquet")
    assert main(["etl", str(parquet_runs.write())]) == 0
