"""The feature table: what it holds, in which order, and what a rerun does."""

import dataclasses
import json
import threading
import time

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from make_source import SCHEMA, make_pipeline, make_rows, make_source
from pyspark.sql import functions

from rec.core.errors import DayError, SchemaDriftError, TableError
from rec.core.ids import MISSING
from rec.core.schema import Column, FeatureSchema
from rec.etl import sink
from rec.etl.attempts import input_digests
from rec.etl.delta import PROPERTIES, commits
from rec.etl.features import open_features
from rec.etl.fit import fit_features
from rec.etl.lake import Lake
from rec.etl.order import FORMAT_SEED, ROW_GROUP_ROWS, ordered, partition_keys
from rec.etl.sink import write_days, write_features
from rec.ops.categorify import Categorify
from rec.ops.pipeline import Pipeline

BY_ATTEMPT = ("ledger", "quarantine", "counts")


def feature_rows(spark, root, version=None):
    reader = spark.read.format("delta")
    reader = reader.option("versionAsOf", version) if version is not None else reader
    return sorted(tuple(r) for r in reader.load(f"{root}/features").collect())


def attempts(spark, root, table):
    rows = spark.read.format("delta").load(f"{root}/{table}").select("day", "attempt").distinct().collect()
    return sorted((r["day"], r["attempt"]) for r in rows)


def run(spark, root, days, **arguments):
    source = make_source(spark, days, **arguments)
    return write_features(source, fit_features(source, make_pipeline(), root, [0, 1]))


@pytest.fixture(scope="module")
def days():
    return {day: make_rows(day, 80 + day) for day in range(3)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("sink") / "lake"


@pytest.fixture(scope="module")
def source(spark, days):
    return make_source(spark, days, quarantined=[(0, "blank"), (2, "short:3")])


@pytest.fixture(scope="module")
def fitted(source, root):
    return fit_features(source, make_pipeline(), root, [0, 1])


@pytest.fixture(scope="module")
def table(source, fitted):
    return write_features(source, fitted)


def test_rows_are_the_encoded_rows_of_the_source(spark, source, fitted, table, root):
    expected = fitted.transform(source.frame).select("row_key", "label", "I1", "I2", "C1", "C2", "C3", "day").collect()
    assert feature_rows(spark, root) == sorted(tuple(r) for r in expected)
    assert (table.days, table.num_rows, table.state_id) == ((0, 1, 2), 80 + 81 + 82, fitted.state_id)
    assert table.schema == fitted.encoded_schema


def test_columns_have_the_promised_types(spark, table):
    assert dict(spark.read.format("delta").load(table.uri).dtypes) == {
        "row_key": "bigint",
        "label": "int",
        **dict.fromkeys(("I1", "I2"), "float"),
        **dict.fromkeys(("C1", "C2", "C3"), "int"),
        "day": "int",
    }
    nullable = [f.name for f in DeltaTable(table.uri).schema().fields if f.nullable]
    assert nullable == ["label"]


def test_tables_keep_their_files_for_ever_and_stay_plain(table, root):
    for name in ("features", "vocabulary", "files", "goldens", *BY_ATTEMPT):
        opened = DeltaTable(f"{root}/{name}")
        assert opened.metadata().configuration == PROPERTIES
        assert not opened.protocol().reader_features


def test_every_line_is_accounted_for(spark, source, table, root):
    ledger = spark.read.format("delta").load(f"{root}/ledger").collect()
    assert sum(r["lines"] for r in ledger) == sum(f.num_lines for f in source.files)
    assert {r["day"]: r["accepted"] for r in ledger} == {0: 80, 1: 81, 2: 82}
    assert sum(r["accepted"] + r["padded"] for r in ledger) == table.num_rows
    quarantine = spark.read.format("delta").load(f"{root}/quarantine").collect()
    assert sorted((r["day"], r["file"], r["line"], r["reason"]) for r in quarantine) == [
        (0, "/raw/day_0", 81, "blank"),
        (2, "/raw/day_2", 83, "short:3"),
    ]


def test_lines_of_a_day_without_rows_go_with_another_that_has_some(spark, tmp_path, days):
    """Day 5's file holds bad lines alone; day 1's holds one that tells another day, before all others."""
    source = make_source(spark, {1: days[1], 2: days[2], 5: []}, quarantined=[(1, "label"), (2, "blank"), (5, "blank")])
    early = source.ledger.lines.withColumn("day", functions.expr("CASE WHEN _outcome = 'label' THEN 0 ELSE day END"))
    quarantine = source.quarantine.withColumn("day", functions.expr("CASE WHEN reason = 'label' THEN 0 ELSE day END"))
    ledger = dataclasses.replace(source.ledger, lines=early)
    source = dataclasses.replace(source, ledger=ledger, quarantine=quarantine)
    table = write_features(source, fit_features(source, make_pipeline(), tmp_path, [1]))
    assert table.days == (1, 2)
    rows = spark.read.format("delta").load(f"{tmp_path}/ledger").collect()
    assert sum(r["lines"] for r in rows) == sum(f.num_lines for f in source.files) == 81 + 82 + 3
    assert sum(r["accepted"] for r in rows) == table.num_rows
    found = spark.read.format("delta").load(f"{tmp_path}/quarantine").collect()
    assert sorted((r["day"], r["file"], r["reason"]) for r in found) == [
        (1, "/raw/day_1", "label"),
        (2, "/raw/day_2", "blank"),
        (2, "/raw/day_5", "blank"),
    ]
    for day in (1, 2):
        of_day = [r for r in rows if r["day"] == day]
        assert sum(r["quarantined"] for r in of_day) == sum(r["day"] == day for r in found)


def test_a_file_without_rows_is_input_of_the_day_before_it_alone(spark, days):
    some = {day: days[day] for day in (1, 2)}
    before = input_digests(make_source(spark, some), make_pipeline(), [1, 2])
    after = input_digests(make_source(spark, {**some, 5: []}, quarantined=[(5, "blank")]), make_pipeline(), [1, 2])
    assert after[1] == before[1]
    assert after[2] != before[2]


def test_the_features_commit_is_last_and_names_the_others(table, root, fitted):
    visible = Lake(root).visible()
    assert [(d.day, d.attempt, d.state_id) for d in visible.values()] == [(d, 1, fitted.state_id) for d in range(3)]
    for day in visible.values():
        assert day.versions["counts"] == DeltaTable(f"{root}/counts").version()
        assert set(day.versions) >= {"counts", "statistics", "quarantine", "ledger", "vocabulary", "files"}
    table_log = DeltaTable(table.uri)
    assert [table_log.transaction_version(f"features/{day}") for day in range(3)] == [1, 1, 1]


def test_the_same_input_again_writes_nothing_and_says_so(source, fitted, table, caplog):
    with caplog.at_level("INFO", logger="rec.etl.sink"):
        again, written = write_days(source, fitted, "again")
    assert written == ()
    assert again == table
    assert "days [0, 1, 2]: same input and state, nothing to write" in caplog.text


def test_a_table_opens_without_spark(table, root):
    assert open_features(root) == table
    one_day = open_features(root, days=[2])
    assert (one_day.days, one_day.num_rows) == ((2,), 82)
    with pytest.raises(DayError, match=r"day 7 is not in it; it holds \[0, 1, 2\]"):
        open_features(root, days=[7])
    with pytest.raises(TableError, match="version 99"):
        open_features(root, version=99)
    with pytest.raises(TableError, match="no Delta table"):
        open_features(root / "nowhere")


def test_an_older_version_tells_its_own_days(table, root):
    first = open_features(root, version=1)
    assert len(first.days) == 1
    assert first.num_rows == Lake(root).visible()[first.days[0]].num_rows


def test_a_missing_value_and_a_label_left_out_stay_apart(spark, tmp_path, days):
    unlabelled = {day: [(None, *row[1:]) for row in rows] for day, rows in days.items()}
    table = run(spark, tmp_path, unlabelled)
    rows = feature_rows(spark, tmp_path)
    assert {r[1] for r in rows} == {None}
    assert table.num_rows == len(rows)
    assert any(MISSING in r[4:7] for r in rows)


def test_a_repaired_day_replaces_its_part_everywhere(spark, tmp_path, days):
    root = tmp_path / "lake"
    run(spark, root, days)
    repaired = {**days, 1: make_rows(1, 95, salt="repaired")}
    table = run(spark, root, repaired)
    fresh = run(spark, tmp_path / "fresh", repaired)
    assert table.num_rows == fresh.num_rows == 80 + 95 + 82
    for name in ("ledger", "counts"):
        assert set(attempts(spark, root, name)) <= {(0, 1), (0, 2), (1, 2), (2, 1), (2, 2)}
    visible = Lake(root).visible()
    assert visible[1].attempt == 2
    # Nothing of the first attempt is left, and the counts are those of the repaired day alone.
    for name in ("ledger", "counts"):
        assert attempts(spark, root, name) == sorted(
            (d, a.attempt) for d, a in visible.items() if name == "ledger" or d in (0, 1)
        )
    columns = ["day", "column", "key", "value", "count"]
    one, other = (
        sorted(map(repr, spark.read.format("delta").load(f"{r}/counts").select(*columns).collect()))
        for r in (root, tmp_path / "fresh")
    )
    assert one == other


def test_batches_run_again_in_any_order_change_nothing(spark, tmp_path, cases):
    """Each batch is a day's file, as a nightly job that crashed and was started once more."""
    folder = cases / "38_rerun_idempotent"
    expected = json.loads((folder / "expected.json").read_text())
    schema = FeatureSchema(columns=(SCHEMA.label, Column(name="k", role="sparse", dtype="int64", key="int64")))
    batches = {
        n: [(0, int(line)) for line in (folder / f"batch{n}.csv").read_text().split()[1:]]
        for n in set(expected["run_order"])
    }
    first = make_source(spark, {1: batches[1]}, schema=schema)
    fitted = fit_features(first, Pipeline(schema.sparse >> Categorify()), tmp_path, [1])
    found = []
    for n in expected["run_order"]:
        write_features(make_source(spark, {n: batches[n]}, schema=schema), fitted)
        found.append(len(feature_rows(spark, tmp_path)))
    assert found == expected["rows_after_each"]
    assert len({r[0] for r in feature_rows(spark, tmp_path)}) == found[-1]


def test_days_of_two_states_are_refused_with_the_remedy(spark, tmp_path, days):
    source = make_source(spark, days)
    write_features(source, fit_features(source, make_pipeline(), tmp_path, [0, 1]))
    only_two = make_source(spark, {2: days[2]})
    write_features(only_two, fit_features(only_two, make_pipeline(freq_threshold=1), tmp_path, [2]))
    with pytest.raises(TableError, match=r"days \[0, 1\] were encoded with state .* run rec etl over all"):
        open_features(tmp_path)
    assert open_features(tmp_path, days=[0, 1]).days == (0, 1)


def test_a_column_that_is_gone_is_named(spark, tmp_path, days):
    run(spark, tmp_path, days)
    source = make_source(spark, days)
    narrow = Pipeline(SCHEMA.sparse >> Categorify())
    with pytest.raises(SchemaDriftError, match="'I1' is in the source, but the recipe's features no longer name it"):
        write_features(source, fit_features(source, narrow, tmp_path, [0]))


def test_a_table_feature_outside_the_list_is_refused_by_name(spark, tmp_path, days):
    run(spark, tmp_path, days)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}/features` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    with pytest.raises(TableError, match="feature 'deletionVectors' is on"):
        open_features(tmp_path)


def test_of_two_writers_of_one_day_the_loser_reads_again(spark, tmp_path, days, monkeypatch):
    """A rival commits another input of the day between this run's decision and its commit."""
    source = make_source(spark, {0: days[0]})
    fitted = fit_features(source, make_pipeline(), tmp_path, [0])
    rival = make_source(spark, {0: make_rows(0, 33, salt="rival")})
    real, rivals = sink.write_frame, [lambda: write_features(rival, fitted)]

    def write_after_a_rival(uri, *arguments, **named):
        if uri.endswith("/features") and rivals:
            rivals.pop()()
        return real(uri, *arguments, **named)

    monkeypatch.setattr(sink, "write_frame", write_after_a_rival)
    table = write_features(source, fitted)
    assert table.num_rows == len(days[0])
    assert Lake(tmp_path).visible()[0].attempt == 3
    assert attempts(spark, tmp_path, "ledger") == [(0, 3)]
    assert attempts(spark, tmp_path, "counts") == [(0, 3)]


def test_a_commit_that_meets_anothers_is_decided_again(spark, tmp_path, days, monkeypatch):
    """The rival, another process in earnest, commits the day while this run's job is at work on it."""
    armed, started, go = (tmp_path / name for name in ("armed", "started", "go"))

    def wait(label):
        if armed.exists() and not go.exists():
            started.touch()
            while not go.exists():
                time.sleep(0.05)
        return label

    root = tmp_path / "lake"
    calm = make_source(spark, {0: days[0]})
    fitted = fit_features(calm, make_pipeline(), root, [0])
    write_features(calm, fitted)
    # One task at work leaves the other core to the rival.
    repaired = make_source(spark, {0: make_rows(0, 44, salt="repaired")}, num_partitions=1)
    waiting = repaired.frame.withColumn("label", functions.udf(wait, "int")("label"))
    source = dataclasses.replace(repaired, keyed=waiting)
    uri = f"{root}/features"

    def rival():
        while not started.exists():
            time.sleep(0.05)
        metadata = {**dataclasses.asdict(Lake(root).visible()[0]), "attempt": 9, "digest": "rival's"}
        rows = spark.read.format("delta").load(uri).limit(5)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", "day = 0")
        writer = writer.option("txnAppId", "features/0").option("txnVersion", 9)
        writer.option("userMetadata", json.dumps(metadata)).save(uri)
        go.touch()

    real, results = sink.write_frame, []

    def write_while_a_rival_does(address, *arguments, **named):
        if address == uri and not armed.exists():
            armed.touch()
            threading.Thread(target=rival).start()
        results.append(real(address, *arguments, **named))
        return results[-1]

    monkeypatch.setattr(sink, "write_frame", write_while_a_rival_does)
    assert write_features(source, fitted).num_rows == 44
    assert go.exists()
    assert len(results) == 1
    assert Lake(root).visible()[0].attempt == 10
    assert len(feature_rows(spark, root)) == 44


def test_two_writers_at_once_leave_one_whole_day(spark, tmp_path, days):
    source = make_source(spark, {0: days[0]})
    fitted = fit_features(source, make_pipeline(), tmp_path, [0])
    failed = []

    def work():
        try:
            write_features(source, fitted)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failed:
        raise error
    assert len(feature_rows(spark, tmp_path)) == len(days[0])
    assert sum("attempt" in c.metadata for c in commits(f"{tmp_path}/features")) == 1


def test_rows_stand_in_the_order_of_their_keys_hash(spark, tmp_path):
    frame = spark.range(300_000).selectExpr("id * 7919 AS row_key", "0 AS day").repartition(5)
    files = [
        [r["row_key"] for r in part]
        for part in ordered(frame, 300_000).rdd.mapPartitions(lambda rows: [list(rows)]).collect()
    ]
    assert len(files) == 2
    in_order = frame.selectExpr("row_key", f"xxhash64(row_key, {FORMAT_SEED}L) AS h").orderBy("h").collect()
    assert [key for file in files for key in file] == [r["row_key"] for r in in_order]


@pytest.mark.parametrize("num_partitions", [1, 2, 7, 64])
def test_partition_keys_reach_their_partitions(spark, num_partitions):
    keys = partition_keys(num_partitions)
    found = spark.range(1).selectExpr(*[f"pmod(hash(CAST({k} AS INT)), {num_partitions})" for k in keys]).first()
    assert list(found) == list(range(num_partitions))


def test_row_groups_hold_exactly_65536_rows(spark, tmp_path):
    frame = spark.range(150_000).selectExpr("id AS row_key", "0 AS day", "rand(1) AS x", "id % 7 AS y")
    ordered(frame, 150_000).write.parquet(str(tmp_path / "out"))
    [file] = (tmp_path / "out").glob("*.parquet")
    metadata = pq.ParquetFile(file).metadata
    sizes = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
    assert sizes == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 150_000 - 2 * ROW_GROUP_ROWS]
