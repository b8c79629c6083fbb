"""The whole road on small generated rows, by recipe and by the Python API."""

import json

import numpy as np
import pytest
from small_road import RECIPE, Road

import rec
from rec.core.records import newest_record
from rec.etl.features import open_features
from rec.serve.config import ServeConfig
from rec.serve.server import Server
from rec.train.curves import read_scores


@pytest.fixture(scope="module")
def walked(tmp_path_factory, raw_days, spark) -> Road:
    """A road that was walked to its end."""
    road = Road(tmp_path_factory.mktemp("road"), raw_days)
    road.content["train"]["refit"] = True
    assert road.command("run") == 0
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


def test_features_again_are_a_no_op(walked):
    before = open_features(walked.root)
    assert walked.command("etl") == 0
    assert newest_record(walked.root, "etl").figures["no_op"]
    assert open_features(walked.root) == before


def test_a_file_is_scored_by_the_running_server(walked, raw_days, tmp_path, capsys):
    rows, out = raw_days / "day_2.tsv", tmp_path / "scores.csv"
    assert walked.command("score", str(rows), str(out)) == 2
    assert "rec serve" in capsys.readouterr().err
    serve = ServeConfig(**walked.content["serve"])
    with Server(serve):
        assert walked.command("score", str(rows), str(out)) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "file,line,prob,logit"
    assert len(lines) == 1 + 300
    scores = read_scores(newest_record(walked.root, "evaluate").outputs["scores"].uri)
    logits = np.array([float(line.split(",")[3]) for line in lines[1:]])
    np.testing.assert_allclose(logits, scores["logit"], atol=1e-5, rtol=1e-5)


def test_rollback_needs_an_earlier_version(walked, capsys):
    assert walked.command("rollback") == 2
    assert "cannot be served again" in capsys.readouterr().err


def test_the_python_api(tmp_path, raw_days, spark):
    clicks = rec.read_criteo(spark, raw_days / "day_*.tsv", day={"path": r"day_(\d+)"})
    dense = clicks.schema.dense >> rec.FillMissing(0) >> rec.Clip(min=0) >> rec.LogOp()
    sparse = clicks.schema.sparse >> rec.Categorify(freq_threshold=2)
    days = rec.Days(train=range(1), valid=[1], test=[2])
    fitted = rec.fit_features(clicks, rec.Pipeline(dense, sparse), tmp_path / "lake", days=days.train)
    table = rec.write_features(clicks, fitted)
    config = rec.TrainConfig(num_proc=2, **{k: v for k, v in RECIPE["train"].items() if k != "num_proc"})
    checkpoint = rec.train_model(table, rec.DLRMConfig(embedding_dim=8), config, days)
    assert rec.evaluate(checkpoint, table, days=days.test).num_rows == 300
    served = rec.push(rec.export(checkpoint, fitted), tmp_path / "models")
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
