"""Progress from beats: a bar on a terminal, plain lines elsewhere."""

import io

from rich.console import Console

from rec.launch.progress import ProgressDisplay
from rec.launch.watch import RankView

TRAIN = {"epoch_step": 4, "num_steps": 8, "rows_per_s": 12345, "eta_s": 3.2, "epoch": 2, "loss": 0.45678}


def _show(terminal, *beats, line_every_s=0.0):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120)
    with ProgressDisplay(console, line_every_s) as display:
        for rank, phase, figures in beats:
            display(RankView(rank, 0.0, phase=phase, figures=figures))
    return screen.getvalue()


def test_lines_say_phase_epoch_position_loss_speed_and_time_left():
    beats = [(0, "load", {}), (0, "train", TRAIN), (1, "train", {**TRAIN, "loss": 9.0}), (0, "checkpoint", {})]
    assert _show(False, *beats).splitlines() == [
        "load",
        "train epoch 2 4/8 loss 0.4568 · 12,345 rows/s · 3 s left",
        "checkpoint",
    ]


def test_lines_of_one_phase_come_no_faster_than_asked():
    beats = [(0, "train", TRAIN)] * 5 + [(0, "evaluate", TRAIN)]
    assert len(_show(False, *beats, line_every_s=60.0).splitlines()) == 2


def test_the_bar_of_a_phase_that_is_over_is_full():
    text = _show(True, (0, "load", {}), (0, "train", TRAIN), (0, "checkpoint", {}))
    last = text.rsplit("train epoch 2", 1)[1]
    assert "8/8" in last
    assert "loss 0.4568 · 12,345 rows/s · 3 s left" in last
    assert "checkpoint" in last
