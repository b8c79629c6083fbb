"""Fitting a pipeline on days of a source: count each day once, add the days up, admit."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rec.core.errors import ConcurrentWriteError
from rec.core.schema import FeatureSchema
from rec.core.tables import Days
from rec.etl.attempts import input_digests, record_days
from rec.etl.counts import append_counts, columns_of, counted_days, fitted_op
from rec.etl.features import check_root
from rec.etl.files import TRIES
from rec.etl.lake import Lake
from rec.etl.scan import union
from rec.etl.source import Source
from rec.etl.vocabulary import attach, commit_entries, current_version, known_entries
from rec.ops.categorify import Categorify
from rec.ops.chain import Chain
from rec.ops.entries import summarize
from rec.ops.op import FittedOp, NoState, State
from rec.ops.pipeline import CountedDay, FittedPipeline, Pipeline, States

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


def new_run_id() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")


def fit_features(
    source: Source, pipeline: Pipeline, root: str | Path, days: Iterable[int], run_id: str | None = None
) -> FittedPipeline:
    """Fit the pipeline on the days alone and store its state under ``root``; a day counted before is not read again.

    Raises SchemaDriftError where days under the root have other columns, DayError for a day without rows,
    QuarantineLimitError, and ConcurrentWriteError where other fits keep committing first.
    """
    wanted = tuple(sorted(set(days)))
    lake, run_id = Lake(root), run_id or new_run_id()
    check_root(lake, pipeline, source.schema)
    source.check()
    source.check_days(Days(train=wanted))
    schema = pipeline.select(source.schema)
    counted: dict[int, CountedDay] = {}
    for _ in range(TRIES):
        try:
            if not _are_held(pipeline, lake, counted):
                counted = _count_days(source, pipeline, lake, run_id, wanted)
            states, state_id = _admit(pipeline, source, lake, run_id, counted)
            break
        except ConcurrentWriteError as error:
            log.info("%s", error)
    else:
        raise ConcurrentWriteError(f"{lake.root}: {TRIES} fits lost to other runs; run it again")
    fitted = FittedPipeline(
        root=lake.root, schema=schema, pipeline=pipeline, states=states, days=wanted, state_id=state_id, counted=counted
    )
    fitted.save(lake.state_folder(state_id))
    return fitted


def _are_held(pipeline: Pipeline, lake: Lake, counted: dict[int, CountedDay]) -> bool:
    """Tell whether no other run removed the counts: a day written anew overtakes the attempt that they are of."""
    return bool(counted) and counted_days(pipeline, lake, {d: c.attempt for d, c in counted.items()}) == set(counted)


def _count_days(
    source: Source, pipeline: Pipeline, lake: Lake, run_id: str, days: tuple[int, ...]
) -> dict[int, CountedDay]:
    """Return which attempt holds each day's counts, counting the days of which no visible one does."""
    spark = source.frame.sparkSession
    digests = input_digests(source, pipeline, days)
    same = {day: shown.attempt for day, shown in lake.visible().items() if shown.input_digest == digests.get(day)}
    known = counted_days(pipeline, lake, same)
    counted = {day: CountedDay(same[day], digest) for day, digest in digests.items() if day in known}
    fresh = {day: digest for day, digest in digests.items() if day not in counted}
    if fresh:
        log.info("counting the values of days %s", sorted(fresh))
        attempts = record_days(source, lake, spark, run_id, fresh)
        append_counts(source.keyed, source.schema, pipeline, lake, run_id, attempts)
        counted |= {day: CountedDay(attempt, fresh[day]) for day, attempt in attempts.items()}
    log.info("values of days %s counted, those of days %s known", sorted(fresh), sorted(set(counted) - set(fresh)))
    return dict(sorted(counted.items()))


def _admit(
    pipeline: Pipeline, source: Source, lake: Lake, run_id: str, counted: dict[int, CountedDay]
) -> tuple[States, str]:
    """Return the states that follow from the counted days; the vocabulary is committed, once for all chains."""
    spark = source.frame.sparkSession
    fits = [_Fit(chain, pipeline.select(source.schema), lake, spark, counted) for chain in pipeline.chains]
    vocabularies = [fit for fit in fits if isinstance(fit.op, Categorify)]
    version = current_version(lake) if vocabularies else -1
    states = [fit.states(version) for fit in fits]
    state_id = pipeline.state_id(tuple(tuple(row) for row in states))
    if any(fit.num_values for fit in vocabularies):
        entries = union([fit.entries for fit in vocabularies])
        held = [fit.known for fit in vocabularies if fit.known is not None]
        known = union(held) if held else None
        version = commit_entries(lake, entries, known, version, {"run_id": run_id, "state_id": state_id})
    for fit, row in zip(fits, states):
        if isinstance(fit.op, Categorify):
            row[fit.place] = attach(row[fit.place], fit.op, lake, spark, version)
    return tuple(tuple(row) for row in states), state_id


class _Fit:
    """One chain's fit: which operator learns, from which counted days, and the vocabulary entries it arrives at."""

    op: FittedOp | None
    entries: "DataFrame"
    known: "DataFrame | None"
    num_values: int

    def __init__(
        self, chain: Chain, schema: FeatureSchema, lake: Lake, spark: "SparkSession", counted: dict[int, CountedDay]
    ):
        self.chain, self.lake, self.spark = chain, lake, spark
        found = fitted_op(chain)
        self.place, self.op = found if found else (len(chain.ops), None)
        self.columns = columns_of(chain, self.place, schema)
        self.attempts = {day: c.attempt for day, c in counted.items()}

    def states(self, version: int) -> list[State]:
        """Return a state for each operator; a vocabulary's has no arrays yet. ``version`` is the vocabulary's."""
        states: list[State] = [NoState() for _ in self.chain.ops]
        if self.op is None:
            return states
        rows = self.lake.read(self.spark, self.op.statistics_table, self.attempts)
        statistics = self.op.read(rows, self.columns)
        if isinstance(self.op, Categorify):
            self.known = known_entries(self.lake, self.spark, version, self.chain.names)
            self.entries = self.op.grow(statistics, self.known)
            state = summarize(self.entries, self.columns)
            self.num_values = sum(column.num_values for column in state.columns.values())
            states[self.place] = state
        else:
            states[self.place] = self.op.admit(statistics)
        return states
