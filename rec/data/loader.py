"""Batches of a feature table: equal steps on every rank, one order for every world size, exact resume."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from rec.core.errors import LoaderError
from rec.core.tables import FeatureTable
from rec.data.batch import Batch, BatchBuilder, Block
from rec.data.config import LoaderConfig
from rec.data.decode import WindowDecoder
from rec.data.engine import read_blocks
from rec.data.layout import Layout
from rec.data.schedule import Schedule, Window, streams_of_rank
from rec.data.snapshot import Snapshot, read_snapshot


class RowCounts(NamedTuple):
    """Where the rows of the days go in one epoch: num_rows = num_used + num_remainder + num_unlabelled.

    ``supplied`` counts, by column of a later day, the labelled rows that get a missing value for it.
    """

    num_rows: int
    num_used: int
    num_remainder: int
    num_unlabelled: int
    supplied: dict[str, int]


def make_loader(
    table: FeatureTable,
    days: Iterable[int],
    *,
    rank: int = 0,
    world_size: int = 1,
    config: LoaderConfig,
    evaluation: bool = False,
) -> "Loader":
    """Open some days of a table for one rank.

    With ``evaluation`` every labelled row comes exactly once, unshuffled and with its row key, the last batch padded.
    Raises LoaderError, TableError, DayError or SchemaDriftError before anything is decoded. Iterating raises
    LoaderError for a null, IdRangeError for an id outside its table and TableError for a file gone since.
    """
    streams = streams_of_rank(rank, world_size, config.num_streams)
    layout = Layout.of(table.schema, with_row_key=evaluation)
    snapshot = read_snapshot(table, days, layout)
    schedule = Schedule(
        num_rows_R=snapshot.num_labelled_R,
        global_batch_size=config.global_batch_size,
        num_streams=config.num_streams,
        num_window_row_groups=config.num_window_row_groups,
        seed=config.seed,
        evaluation=evaluation,
    )
    if not schedule.steps_per_epoch:
        raise LoaderError(
            f"{table.uri} version {table.version}: days {list(snapshot.days)} hold {schedule.num_rows} labelled rows, "
            f"fewer than global_batch_size = {config.global_batch_size}; "
            + ("name days with labels" if not schedule.num_rows else "set it lower, or name more days")
        )
    return Loader(snapshot, layout, schedule, streams, config.num_workers)


class Loader:
    """One rank's batches. Iterating goes from the present step to the end of the epoch; the next iteration is the
    next epoch. A batch counts as taken as soon as it was handed out."""

    def __init__(
        self, snapshot: Snapshot, layout: Layout, schedule: Schedule, streams: list[int], num_workers: int
    ) -> None:
        self._snapshot, self._layout, self._schedule = snapshot, layout, schedule
        self._streams, self._num_workers = streams, num_workers
        self._decoder = WindowDecoder(snapshot, layout, schedule)
        self.epoch = self.step = 0

    @property
    def steps_per_epoch(self) -> int:
        return self._schedule.steps_per_epoch

    @property
    def batch_size(self) -> int:
        """Rows of this rank in a step."""
        return len(self._streams) * self._schedule.slice_rows

    @property
    def counts(self) -> RowCounts:
        schedule, snapshot = self._schedule, self._snapshot
        remainder = 0 if schedule.evaluation else schedule.num_remainder
        return RowCounts(
            num_rows=snapshot.num_rows,
            num_used=schedule.num_rows - remainder,
            num_remainder=remainder,
            num_unlabelled=snapshot.num_rows - snapshot.num_labelled,
            supplied=snapshot.supplied,
        )

    def state(self) -> dict[str, Any]:
        """Return all that the rest of the run's order depends on, as JSON values: the same on every rank."""
        return {**self._order(), "epoch": self.epoch, "step": self.step}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a run stopped that any world size made. Raises LoaderError where its order was another."""
        for name, here in self._order().items():
            if state.get(name) != here:
                raise LoaderError(
                    f"loader state has {name} = {state.get(name)!r}, this run {here!r}: its rows would come in another "
                    "order; resume with the same value or start a new run"
                )
        epoch, step = state.get("epoch", -1), state.get("step", -1)
        if not 0 <= step < self.steps_per_epoch or epoch < 0:
            raise LoaderError(
                f"loader state has epoch {epoch}, step {step}, outside the {self.steps_per_epoch} steps of an epoch; "
                "it is of another table, start a new run"
            )
        self.epoch, self.step = epoch, step

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self.epoch, self.step
        windows = self._schedule.plan(epoch, first, self._streams)
        builder = BatchBuilder(self._layout, self.batch_size)
        with closing(read_blocks(self._decoder, windows, self._num_workers)) as blocks:
            cursors = _Cursors(self._decoder, blocks, first)
            for step in range(first, self.steps_per_epoch):
                for stream in self._streams:
                    cursors.add_slice(builder, stream, step)
                done = step + 1 == self.steps_per_epoch
                self.epoch, self.step = (epoch + 1, 0) if done else (epoch, step + 1)
                yield builder.build()

    def _order(self) -> dict[str, Any]:
        return {
            "version": self._snapshot.version,
            "days": list(self._snapshot.days),
            "num_rows": self._schedule.num_rows,
            "global_batch_size": self._schedule.global_batch_size,
            "num_streams": self._schedule.num_streams,
            "num_window_row_groups": self._schedule.num_window_row_groups,
            "seed": self._schedule.seed,
        }


class _Cursors:
    """How far each stream was read: its present block, and the row of it that comes next."""

    def __init__(self, decoder: WindowDecoder, blocks: Iterator[tuple[Window, Block]], first_step: int) -> None:
        self._decoder, self._blocks = decoder, blocks
        self._skipped = first_step * decoder.schedule.slice_rows
        self._present: dict[int, tuple[Block, int, int]] = {}

    def add_slice(self, builder: BatchBuilder, stream: int, step: int) -> None:
        """Append the stream's rows of a step."""
        wanted = self._decoder.schedule.step_rows(stream, step)
        while wanted:
            block, start, stop = self._present.pop(stream) if stream in self._present else self._next(stream)
            taken = min(wanted, stop - start)
            builder.add(block, start, start + taken)
            wanted -= taken
            if start + taken < stop:
                self._present[stream] = (block, start + taken, stop)
            else:
                self._decoder.free.put(block)

    def _next(self, stream: int) -> tuple[Block, int, int]:
        following = next(self._blocks, None)
        assert following is not None, f"stream {stream}: the reader ended early"
        window, block = following
        assert window.stream == stream, (window, stream)
        return block, max(self._skipped - window.start, 0), window.num_rows
