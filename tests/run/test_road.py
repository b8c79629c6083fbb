"""The whole road on small generated rows, by recipe and by the Python API."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from small_road import RECIPE, Road

import rec
from rec.core.manifest import sha256_file
from rec.core.records import Artifact, Run, Stopwatch, newest_record
from rec.etl.features import open_features
from rec.etl.gpuplan import Fallback
from rec.etl.receipt import CONF, Receipt, kept_receipt
from rec.run import Recipe, Stages
from rec.serve.config import ServeConfig
from rec.serve.server import Server
from rec.train.curves import read_scores

CLUSTER_CONF = Path(__file__).resolve().parents[2] / "conf/spark/cluster-gpu.conf"
SLICE_ROWS = 128


def keep_receipt(road: Road, spark, num_gpu_operators: int, files=None, **changes) -> str:
    """Keep a receipt as one that was taken of the road's recipe, with changes to it; return the id of its run."""
    recipe = Recipe.model_validate({**road.content, **changes})
    stages = Stages(recipe, Run(recipe.root), spark, print)
    fallback = Fallback("ProjectExec", "try_cast is not supported")
    receipt = Receipt(num_queries=9, num_plans=9, num_gpu_operators=num_gpu_operators, fallbacks=(fallback,))
    conf = {CONF: Artifact(uri=str(CLUSTER_CONF), sha256=sha256_file(CLUSTER_CONF))}
    figures = {**receipt.figures(), "broadcasts": True}
    stages.record("explain", Stopwatch(), ({**(files or {}), **conf}, {}), figures)
    return stages.run.run_id


@pytest.fixture(scope="module")
def walked(tmp_path_factory, raw_days, spark) -> Road:
    """A road that was walked to its end, with what it printed; its test day was compared in three slices."""
    road = Road(tmp_path_factory.mktemp("road"), raw_days)
    road.content["train"]["refit"] = True
    road.files = {p.name: Artifact(uri=str(p), sha256=sha256_file(p)) for p in raw_days.glob("day_*.tsv")}
    other = {name: Artifact(uri=file.uri, sha256="0" * 64) for name, file in road.files.items()}
    road.receipt_run = keep_receipt(road, spark, 123, road.files)
    keep_receipt(road, spark, 234, other)
    keep_receipt(road, spark, 345, dict(list(road.files.items())[1:]))
    keep_receipt(road, spark, 456, road.files, features={"dense": road.content["features"]["dense"]})
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.MonkeyPatch.context() as patch:
        patch.setattr("rec.launch.parity.SLICE_ROWS", SLICE_ROWS)
        assert road.command("run") == 0
    road.printed = printed.getvalue()
    return road


def test_every_line_is_accounted_for(walked, raw_days):
    truth = json.loads((raw_days / "ledger.json").read_text())["days"]
    figures = newest_record(walked.root, "etl").figures
    assert [row["lines"] for row in figures["ledger"]] == [day["num_lines"] for day in truth]
    assert [row["accepted"] for row in figures["ledger"]] == [day["num_accepted"] for day in truth]
    assert figures["num_rows"] == sum(day["num_accepted"] for day in truth)


def test_column_cards_count_every_row(walked):
    cards = newest_record(walked.root, "etl").figures["columns"]
    assert len(cards) == 39
    for card in cards:
        assert card["rows"] == 1200
        if card["role"] == "dense":
            assert sum(count for *_, count in card["histogram"]) == 1200
            assert card["min"] <= card["mean"] <= card["max"]


def test_served_equals_offline_on_every_test_row(walked):
    parity = newest_record(walked.root, "push").figures["parity"]
    assert parity["rows"] == 300
    assert [parity[name] for name in ("ids_differ", "dense_differ", "scores_differ", "trainer_differ")] == [0] * 4
    assert abs(parity["auc_delta"]) <= 1e-6


def test_refit_trains_on_train_and_valid_days(walked):
    record = newest_record(walked.root, "train")
    assert record.figures["choice"]["best_epoch"] == len(record.figures["epochs"])
    assert "/refit/" in record.outputs["checkpoint"].uri
    choice = record.figures["choice"]["num_steps"]
    assert record.figures["num_steps"] > choice > 0


def test_the_report_is_one_file(walked):
    [report] = (walked.root / "reports").glob("*.html")
    text = report.read_text()
    assert "small" in text
    assert "://" not in text.replace("http://www.w3.org", "").replace(f"file://{walked.folder}", "")


def test_a_receipt_of_the_same_source_and_features_is_in_record_and_report(walked):
    record = newest_record(walked.root, "etl")
    assert record.figures["gpu_receipt"] == {
        "operators_on_gpu": 123,
        "fallbacks": [["ProjectExec", "try_cast is not supported"]],
        "queries": 9,
        "plans": 9,
        "is_whole": False,
        "broadcasts": True,
        "run_id": walked.receipt_run,
    }
    [report] = (walked.root / "reports").glob("*.html")
    assert "try_cast is not supported" in report.read_text()
    assert walked.receipt_run in report.read_text()
    other = {**record.config, "source": {**record.config["source"], "pad_right": True}}
    assert kept_receipt(walked.root, other, walked.files) is None
    assert kept_receipt(walked.root, record.config, walked.files)["run_id"] == walked.receipt_run


def test_the_speed_of_training_is_recorded_and_shown(walked):
    figures = newest_record(walked.root, "train").figures
    assert 0 < figures["rows_per_second"] < 1e9
    assert f"{figures['rows_per_second']:,.0f} rows/s" in walked.printed
    [report] = (walked.root / "reports").glob("*.html")
    assert f"{figures['rows_per_second']:,.0f} rows/s" in report.read_text()


def test_latency_is_measured_beside_the_bundle_in_process(walked):
    figures = newest_record(walked.root, "push").figures
    for size in ("1", "64", "2048"):
        served, alone = figures["latency_ms"][size], figures["in_process_ms"][size]
        assert 0 < served[0] <= served[1]
        assert 0 < alone[0] <= alone[1]
        assert figures["latency_ratio"][size] == pytest.approx(served[0] / alone[0])


def test_launch_limits_hold_for_evaluation_too(walked, capsys):
    before = newest_record(walked.root, "evaluate")
    assert walked.command("evaluate", "--set", "launch.start_s=0.2") == 2
    assert "start_s" in capsys.readouterr().err
    assert newest_record(walked.root, "evaluate") == before


def test_features_again_are_a_no_op_that_names_the_run_before(walked, capsys):
    before, first = open_features(walked.root), newest_record(walked.root, "etl")
    assert walked.command("etl") == 0
    figures = newest_record(walked.root, "etl").figures
    assert figures["no_op"]
    assert figures["written_by"] == [{"run_id": first.run_id, "seconds": first.seconds}]
    assert first.run_id in " ".join(capsys.readouterr().out.split())
    assert open_features(walked.root) == before


def test_a_file_is_scored_by_the_running_server(walked, raw_days, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("rec.launch.score.SLICE_ROWS", SLICE_ROWS)
    rows, out = raw_days / "day_2.tsv", tmp_path / "scores.csv"
    assert walked.command("score", str(rows), str(out)) == 2
    assert "rec serve" in capsys.readouterr().err
    serve = ServeConfig(**walked.content["serve"])
    with Server(serve):
        assert walked.command("score", str(rows), str(out)) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "file,line,prob,logit"
    assert [int(line.split(",")[1]) for line in lines[1:]] == list(range(1, 301))
    scores = read_scores(newest_record(walked.root, "evaluate").outputs["scores"].uri)
    logits = np.array([float(line.split(",")[3]) for line in lines[1:]])
    np.testing.assert_allclose(logits, scores["logit"], atol=1e-5, rtol=1e-5)


def test_lines_without_a_score_are_counted_by_reason(walked, raw_days, tmp_path, capsys):
    good = (raw_days / "day_2.tsv").read_text(encoding="utf-8-sig").splitlines()[:20]
    (tmp_path / "rows.tsv").write_text("\n".join([*good, "1\tshort", "", "2" + good[0][1:]]) + "\n")
    limit = ("--set", "source.max_quarantine_fraction=0.5")
    with Server(ServeConfig(**walked.content["serve"])):
        assert walked.command("score", str(tmp_path / "rows.tsv"), str(tmp_path / "scores.csv"), *limit) == 0
        said = capsys.readouterr().out
        assert walked.command("score", str(tmp_path / "rows.tsv"), f"{tmp_path}/rows.tsv/below.csv", *limit) == 2
    assert "23 lines: 20 scored, 3 left out: 1 blank, 1 label, 1 short:2; " in " ".join(said.split())
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 21
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {tmp_path}/rows.tsv: File exists; check the path")


def test_rollback_needs_an_earlier_version(walked, capsys):
    assert walked.command("rollback") == 2
    assert "is served and none was before it; push a second bundle first" in capsys.readouterr().err
    assert walked.command("rollback", "--version", "99") == 2
    assert "version 99 cannot be served again" in capsys.readouterr().err


def test_rows_that_are_not_those_the_trainer_scored_are_refused(walked, capsys):
    """Comes after what asks which versions are served: the push itself holds."""
    before = newest_record(walked.root, "push")
    file = Path(newest_record(walked.root, "evaluate").outputs["scores"].uri) / "scores_00000.npz"
    scores = dict(np.load(file))
    scores["row_key"][0] = scores["row_key"].max() + 1000
    np.savez(file, **scores)
    assert walked.command("push") == 2
    assert "are not the 300 that the trainer scored" in capsys.readouterr().err
    assert newest_record(walked.root, "push") == before


def test_the_python_api(tmp_path, raw_days, spark):
    clicks = rec.read_criteo(spark, raw_days / "day_*.tsv", day={"path": r"day_(\d+)"})
    dense = clicks.schema.dense >> rec.FillMissing(0) >> rec.Clip(min=0) >> rec.LogOp()
    sparse = clicks.schema.sparse[:-1] >> rec.Categorify(freq_threshold=2)
    # Too large to broadcast: its values stay in the vocabulary's table until the bundle is written.
    large = clicks.schema.sparse[-1:] >> rec.Categorify(freq_threshold=1, broadcast_max_values=1)
    days = rec.Days(train=range(1), valid=[1], test=[2])
    fitted = rec.fit_features(clicks, rec.Pipeline(dense, sparse, large), tmp_path / "lake", days=days.train)
    table = rec.write_features(clicks, fitted)
    config = rec.TrainConfig(num_proc=2, **{k: v for k, v in RECIPE["train"].items() if k != "num_proc"})
    checkpoint = rec.train_model(table, rec.DLRMConfig(embedding_dim=8), config, days)
    assert rec.evaluate(checkpoint, table, days=days.test).num_rows == 300
    bundle = rec.export(checkpoint, fitted)
    assert bundle.fitted.states[2][0].columns["C26"].keys is not None
    served = rec.push(bundle, tmp_path / "models")
    try:
        scores = served.score(clicks.frame.limit(5))
    finally:
        served.stop()
    assert len(scores) == 5
    assert np.isfinite(scores.logit_B).all()


def test_the_public_names_all_load():
    for name in rec.__all__:
        assert getattr(rec, name) is not None
    with pytest.raises(AttributeError, match="it offers"):
        _ = rec.nothing
