"""Opening a feature table without Spark."""

from collections.abc import Iterable
from pathlib import Path

from rec.core.errors import DayError, TableError
from rec.core.tables import FeatureTable
from rec.etl.delta import open_table
from rec.etl.lake import Lake, VisibleDay
from rec.ops.pipeline import FittedPipeline


def open_features(root: str | Path, version: int | None = None, days: Iterable[int] | None = None) -> FeatureTable:
    """Return a version of the feature table under ``root``: the days asked for, or all.

    Raises TableError where there is no such version, and where its days were not all encoded with one state; DayError
    for a day it does not hold.
    """
    lake = Lake(root)
    uri = lake.uri("features")
    table = open_table(uri, version)
    visible = {day: shown for day, shown in lake.visible(table.version()).items() if shown.num_rows}
    wanted = sorted(set(days)) if days is not None else sorted(visible)
    absent = [day for day in wanted if day not in visible]
    if absent:
        raise DayError(f"{uri} version {table.version()}: day {absent[0]} is not in it; it holds {sorted(visible)}")
    if not wanted:
        raise TableError(f"{uri} version {table.version()}: holds no day yet; write it with rec etl")
    shown = [visible[day] for day in wanted]
    state_id = _one_state(uri, shown)
    return FeatureTable(
        uri=uri,
        version=table.version(),
        schema=FittedPipeline.load(lake.state_folder(state_id)).encoded_schema,
        num_rows=sum(day.num_rows for day in shown),
        days=tuple(wanted),
        state_id=state_id,
    )


def _one_state(uri: str, shown: list[VisibleDay]) -> str:
    by_state: dict[str, list[int]] = {}
    for day in shown:
        by_state.setdefault(day.state_id, []).append(day.day)
    if len(by_state) > 1:
        (state, days), (other, other_days) = list(by_state.items())[:2]
        raise TableError(
            f"{uri}: days {days} were encoded with state {state[:12]}, days {other_days} with {other[:12]}, whose ids "
            "differ; run rec etl over all of these days once more, or name days of one state"
        )
    return next(iter(by_state))
