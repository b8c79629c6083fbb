"""Ctrl-C: exit code 130 and one word, nothing half written, and a next run that is whole."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from small_road import Road

from rec.etl.features import open_features

REPOSITORY = Path(__file__).resolve().parents[2]


def interrupt(road: Road, when, log: Path) -> int:
    """Run the features stage in a process group of its own, and send it SIGINT as a terminal does when it is time."""
    recipe = road.folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(road.content))
    with open(log, "wb") as file:
        command = [sys.executable, "-m", "rec.cli", "etl", str(recipe)]
        run = subprocess.Popen(command, cwd=REPOSITORY, stdout=file, stderr=file, start_new_session=True)
    deadline = time.monotonic() + 120
    try:
        while not when(run.pid):
            assert run.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(run.pid, signal.SIGINT)
        return run.wait(60)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


def has_child(pid: int) -> bool:
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


@pytest.mark.parametrize(
    "moment",
    ["the JVM starts", *(pytest.param(m, marks=pytest.mark.slow) for m in ("values are counted", "rows are written"))],
)
def test_an_interrupted_features_stage_says_one_word_and_the_next_is_whole(road, tmp_path, moment):
    road.content["features"]["sparse"]["columns"] = ["C1", "C2"]
    moments = {
        "the JVM starts": has_child,
        "values are counted": lambda _pid: (road.root / "counts").exists(),
        "rows are written": lambda _pid: (road.root / "features").exists(),
    }
    log = tmp_path / "log"
    assert interrupt(road, moments[moment], log) == 130
    assert log.read_text().strip().splitlines()[-1:] == ["interrupted"]
    assert not re.search(r"Traceback|at org\.apache|Error|Exception", log.read_text()), log.read_text()
    assert not list(road.root.glob("runs/*/etl.json"))
    assert road.command("etl") == 0
    assert open_features(road.root).num_rows == 1200
