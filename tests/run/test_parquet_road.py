"""The whole road on Parquet whose names mean something to an engine, under a root that reads as a pattern."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_road import Road

from rec.core.records import newest_record

# Names of columns that the tables' own queries could take, of modules that torch has, and text that SQL quotes.
DENSE, SPARSE = ("place", "it's", "File", "a.b"), {"slice": "string", "items": "int64", "user.id": "hex32"}
ROWS = {0: 600, 1: 300, 2: 300}


def day_rows(day: int) -> pa.Table:
    rng = np.random.default_rng(day)
    n = ROWS[day]
    place, price, user = rng.integers(-3, 50, n), rng.normal(0, 3, n), rng.integers(0, 40, n)
    clicks = rng.random(n) < 1 / (1 + np.exp(1 - 0.3 * price - (user % 3)))
    return pa.table(
        {
            "click": pa.array(clicks.astype(np.int64)),
            "place": pa.array(place, mask=rng.random(n) < 0.1),
            "it's": pa.array(price, mask=rng.random(n) < 0.1),
            "File": pa.array(rng.integers(0, 9, n).astype(np.int32)),
            "a.b": pa.array(rng.integers(-2, 3, n).astype(np.float32)),
            "slice": pa.array([f"Köln {u % 7}" for u in user], mask=rng.random(n) < 0.1),
            "items": pa.array(user - 20),
            "user.id": pa.array([f"{u * 77_777_777:08x}" for u in user]),
        }
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory, spark) -> Road:
    folder = tmp_path_factory.mktemp("parquet") / "run[1]{2}"
    # Each day's file has the same name.
    for day in ROWS:
        (folder / f"raw/day_{day}").mkdir(parents=True)
        pq.write_table(day_rows(day), folder / f"raw/day_{day}/part-0.parquet")
    road = Road(folder, folder)
    road.content["source"] = {
        "path": str(folder / "raw"),
        "layout": "parquet",
        "day": {"path": r"day_(\d+)"},
        "columns": {"label": "click", "dense": list(DENSE), "sparse": SPARSE},
    }
    road.content["features"] = {
        "place": {"columns": ["place"], "ops": ["normalize"]},
        # As it is: what a network takes of it spans the whole range of the column.
        "price": {"columns": ["it's", "File", "a.b"], "ops": ["fill_missing"]},
        "sparse": {"columns": list(SPARSE), "ops": [{"categorify": {"freq_threshold": 2}}]},
    }
    road.content["train"]["data_parallel_max_bytes"] = 0
    assert road.command("run") == 0
    return road


def test_integers_and_floats_are_served_as_they_were_trained(walked):
    parity = newest_record(walked.root, "push").figures["parity"]
    assert parity["rows"] == ROWS[2]
    assert [parity[name] for name in ("ids_differ", "dense_differ", "scores_differ", "trainer_differ")] == [0] * 4


def test_every_table_lies_whole_on_one_rank_under_its_columns_name(walked):
    plan = newest_record(walked.root, "train").figures["plan"]
    assert {p["table"]: (p["sharding"], len(p["ranks"])) for p in plan} == dict.fromkeys(SPARSE, ("table_wise", 1))


def test_files_of_one_name_are_inputs_of_their_own(walked):
    inputs = newest_record(walked.root, "etl").inputs
    assert sorted(inputs) == [f"day_{day}/part-0.parquet" for day in ROWS]
    assert len({artifact.sha256 for artifact in inputs.values()}) == 3


def test_a_push_asks_for_the_scores_of_the_checkpoint_that_it_serves(walked, capsys):
    before = sorted((walked.folder / "models").rglob("*"))
    assert walked.command("train", "--set", "train.seed=2") == 0
    assert walked.command("push") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "no evaluate stage was run here on" in line
    assert newest_record(walked.root, "train").outputs["checkpoint"].uri in line
    assert "run: rec evaluate RECIPE" in line
    assert sorted((walked.folder / "models").rglob("*")) == before
