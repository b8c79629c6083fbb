"""Progress of a run on the driver, drawn from the beats of rank 0: a bar on a terminal, plain lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from rec.launch.watch import RankView

_LINE_EVERY_S = 10.0


class ProgressDisplay:
    """Call it with each beat. A phase of an epoch is one bar; a phase without a number of steps shows its name."""

    def __init__(self, console: Console | None = None, line_every_s: float = _LINE_EVERY_S):
        self._console = console or Console(stderr=True)
        self._line_every_s = line_every_s
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._phase: tuple[str, Any] | None = None
        self._line_at = 0.0

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
            )
            self._bars = Progress(*columns, console=self._console)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()

    def __call__(self, view: RankView) -> None:
        if view.rank != 0:
            return
        phase = (view.phase, view.figures.get("epoch"))
        changed, self._phase = phase != self._phase, phase
        name = view.phase if phase[1] is None else f"{view.phase} epoch {phase[1]}"
        if self._bars:
            self._draw(self._bars, name, view.figures, changed)
        elif changed or time.monotonic() - self._line_at >= self._line_every_s:
            self._line_at = time.monotonic()
            self._console.print(
                " ".join([name, *_position(view.figures), _text(view.figures)]).rstrip(), highlight=False
            )

    def _draw(self, bars: Progress, name: str, figures: dict[str, Any], changed: bool) -> None:
        if changed or self._task is None:
            self._finish(bars)
            self._task = bars.add_task(name, total=figures.get("num_steps"), text="")
        bars.update(self._task, completed=figures.get("epoch_step", 0), text=_text(figures))

    def _finish(self, bars: Progress) -> None:
        """Fill the bar of a phase that is over: its last beat came before its last step. Others leave no trace."""
        if self._task is None:
            return
        total = bars.tasks[-1].total
        if total is None:
            bars.remove_task(self._task)
        else:
            bars.update(self._task, completed=total)


def _position(figures: dict[str, Any]) -> list[str]:
    return [f"{figures['epoch_step']}/{figures['num_steps']}"] if "num_steps" in figures else []


def _text(figures: dict[str, Any]) -> str:
    texts = [f"loss {figures['loss']:.4f}"] if "loss" in figures else []
    if "rows_per_s" in figures:
        texts += [f"{figures['rows_per_s']:,} rows/s", f"{figures['eta_s']:.0f} s left"]
    return " · ".join(texts)
