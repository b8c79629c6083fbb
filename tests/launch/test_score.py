"""Scores of a file's rows: whatever the recipe says of a label, rows to score need none."""

import csv

import pyarrow as pa
import pyarrow.parquet as pq
from made_bundle import make_bundle, raw_schema

from rec.etl.config import SourceConfig
from rec.launch.score import score_file
from rec.serve.config import ServeConfig
from rec.serve.push import push


def test_parquet_without_the_label_column_is_scored(spark, tmp_path):
    schema = raw_schema(num_dense=2, num_sparse=2)
    columns = {"label": "click", "dense": ["I1", "I2"], "sparse": {c.name: c.key for c in schema.sparse}}
    given = {"path": "train", "layout": "parquet", "day": {"column": "when"}, "columns": columns}
    config = SourceConfig.model_validate({**given, "work_dir": str(tmp_path / "work")})
    values = {"int64": pa.array([7, None, -1]), "hex32": pa.array(["0000000a", None, "ffffffff"])}
    sparse = {c.name: values.get(c.key, pa.array(["a", "b", None])) for c in schema.sparse}
    pq.write_table(
        pa.table({"I1": pa.array([1, None, -5]), "I2": pa.array([0, 2, 3]), **sparse}), tmp_path / "rows.parquet"
    )
    serve = ServeConfig(repository=tmp_path / "models", model_name="ranker")
    served = push(make_bundle(tmp_path / "bundle", schema=schema), config=serve)
    try:
        scored = score_file(spark, config, tmp_path / "rows.parquet", serve, tmp_path / "scores.csv")
    finally:
        served.stop()
    assert scored.num_rows == 3
    with open(tmp_path / "scores.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["line"] for row in rows] == ["1", "2", "3"]
    assert all(0 < float(row["prob"]) < 1 for row in rows)
