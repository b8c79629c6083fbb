"""Slices hold every row once, in order."""

from rec.launch.slices import sliced


def test_every_row_is_in_one_slice_in_order(spark):
    frame = spark.range(100, numPartitions=3).selectExpr("id * 7 % 100 AS row_key", "id")
    found = [table["row_key"].to_pylist() for table in sliced(frame, [0, 10, 65])]
    assert found == [list(range(10)), list(range(10, 65)), list(range(65, 100))]


def test_without_keys_there_is_no_slice(spark):
    assert list(sliced(spark.range(0).selectExpr("id AS row_key"), [])) == []
