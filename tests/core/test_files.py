"""Manifests, atomic writes and run records."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rec.core.errors import ConfigError, SchemaDriftError
from rec.core.manifest import canonical_json, digest_folder, sha256_json, write_atomic
from rec.core.records import Run, StageRecord, Stopwatch
from rec.core.schema import Column, FeatureSchema


def test_canonical_json_depends_on_the_value_alone():
    assert canonical_json({"b": 1, "a": [1, 2]}) == canonical_json({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
    assert sha256_json({"a": 1}) != sha256_json({"a": 2})
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})


def test_a_failed_write_leaves_the_file_before(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    write_atomic(path, "before")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "after")
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["f.json"]


def test_writers_of_one_file_do_not_meet(tmp_path, monkeypatch):
    both, flush = threading.Barrier(2), os.fsync
    # Each holds its temporary file at the same time, the other's beside it.
    monkeypatch.setattr("os.fsync", lambda file: (both.wait(timeout=60), flush(file)))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda text: write_atomic(tmp_path / "f.json", text), ["one", "other"]))
    assert (tmp_path / "f.json").read_text() in ("one", "other")
    assert os.listdir(tmp_path) == ["f.json"]


def test_a_folder_digest_names_every_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x").write_bytes(b"1")
    (tmp_path / "manifest.json").write_text("{}")
    digest = digest_folder(tmp_path, frozenset({"manifest.json"}))
    assert list(digest) == ["a/x"]
    assert digest["a/x"].num_bytes == 1


def record(run: Run) -> StageRecord:
    watch = Stopwatch()
    return StageRecord(run_id=run.run_id, stage="etl", config={}, started_utc=watch.started_utc, seconds=watch.seconds)


def test_a_stage_is_recorded_once(tmp_path):
    run = Run(tmp_path)
    run.write(record(run))
    assert run.read()["etl"].run_id == run.run_id
    with pytest.raises(ConfigError, match="recorded once"):
        run.write(record(run))


def test_schema_round_trip_and_duplicates():
    label = Column(name="label", role="label", dtype="int32")
    c1 = Column(name="C1", role="sparse", dtype="string", key="hex32")
    schema = FeatureSchema(columns=(label, c1))
    assert FeatureSchema.model_validate(json.loads(schema.model_dump_json())) == schema
    assert schema.sparse == (c1,)
    assert schema.label == label
    with pytest.raises(ValueError, match="'C1' appears 2 times"):
        FeatureSchema(columns=(c1, c1))
    with pytest.raises(SchemaDriftError, match="no label column"):
        _ = FeatureSchema(columns=(c1,)).label
