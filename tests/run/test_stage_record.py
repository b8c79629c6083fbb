"""What every stage leaves: its record, and a line of how long it took."""

import json
import logging

from small_road import RECIPE

from rec.core.config import parse_config
from rec.core.records import Run, Stopwatch
from rec.run import Recipe, Stages


def test_a_stage_says_how_long_it_took_as_its_record_does(tmp_path, caplog):
    source = {"path": "day_*", "layout": "criteo", "day": {"path": r"day_(\d+)"}}
    content = RECIPE | {"root": str(tmp_path), "source": source}
    content["serve"] = {"repository": str(tmp_path), "model_name": "small"}
    stages = Stages(parse_config(Recipe, content, "recipe"), Run(tmp_path), None, print)
    watch = Stopwatch()
    watch._start -= 101
    with caplog.at_level(logging.INFO, "rec"):
        stages.record("train", watch, ({}, {}), {})
    assert json.loads((stages.run.folder / "train.json").read_text())["seconds"] > 100
    assert "train: done in 1 min 41 s" in caplog.messages
