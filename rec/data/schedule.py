"""Which rows make which step: an epoch's order as a function of the data and the recipe, never of the ranks.

R row groups are permuted, laid end to end in a ring and entered at a drawn row: the rows left over after the last
whole step are those just before that entry, so that every epoch leaves out others. From the entry the ring is cut
into ``num_streams`` equal row ranges; step k takes the k-th slice of each; rank r reads streams s ≡ r mod world_size.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rec.core.errors import LoaderError

# First word of a spawn key: an epoch's order and a window's order must never share random numbers.
_EPOCH, _WINDOW = 0, 1


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [start, stop) of a row group, counted over its labelled rows alone."""

    row_group: int
    start: int
    stop: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of a stream that are read and shuffled together; ``start`` is its first row's position in the stream."""

    epoch: int
    stream: int
    index: int
    start: int
    parts: tuple[Part, ...]

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)


@dataclass(frozen=True)
class Schedule:
    """Order of the labelled rows of R row groups.

    With ``evaluation`` rows keep the table's order and every row is read: the rows after the last whole step make one
    more, the last.
    """

    num_rows_R: np.ndarray
    global_batch_size: int
    num_streams: int
    num_window_row_groups: int = 1
    seed: int = 0
    evaluation: bool = False

    def __post_init__(self) -> None:
        assert self.global_batch_size % self.num_streams == 0, (self.global_batch_size, self.num_streams)

    @cached_property
    def num_rows(self) -> int:
        return int(self.num_rows_R.sum())

    @property
    def num_whole_steps(self) -> int:
        return self.num_rows // self.global_batch_size

    @property
    def steps_per_epoch(self) -> int:
        return self.num_whole_steps + (self.evaluation and self.num_remainder > 0)

    @property
    def num_remainder(self) -> int:
        """Rows that fill no whole step."""
        return self.num_rows % self.global_batch_size

    @property
    def slice_rows(self) -> int:
        """Rows that one stream gives to one step."""
        return self.global_batch_size // self.num_streams

    @property
    def max_window_rows(self) -> int:
        """No window has more rows than this: it holds whole row groups at most, and of one stream."""
        largest = int(self.num_rows_R.max(initial=0)) * self.num_window_row_groups
        return min(largest, (self.num_whole_steps + 1) * self.slice_rows)

    def step_rows(self, stream: int, step: int) -> int:
        """Return how many rows a stream gives to a step: ``slice_rows``, fewer in the last step of an evaluation."""
        if step < self.num_whole_steps:
            return self.slice_rows
        return min(max(self.num_remainder - stream * self.slice_rows, 0), self.slice_rows)

    def plan(self, epoch: int, step: int, streams: list[int]) -> list[Window]:
        """Return the windows of ``streams`` that hold rows of ``step`` or later, in the order in which steps need them.

        Windows before ``step`` are left out, so a resumed run decodes none of them; the first of each stream may begin
        before ``step``.
        """
        skipped = step * self.slice_rows
        order = self._epoch_order(epoch)
        wanted = []
        for position, stream in enumerate(streams):
            for window in self._windows(epoch, stream, *order):
                if window.start + window.num_rows > skipped:
                    needed_at = max(window.start // self.slice_rows, step)
                    wanted.append(((needed_at, position, window.index), window))
        return [window for _, window in sorted(wanted, key=lambda pair: pair[0])]

    def permutation(self, window: Window) -> np.ndarray | None:
        """Return the order of a window's rows, None where rows keep the table's order."""
        if self.evaluation:
            return None
        generator = self._generator(_WINDOW, window.epoch, window.stream, window.index)
        return generator.permutation(window.num_rows)

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key)))

    def _epoch_order(self, epoch: int) -> tuple[np.ndarray, int]:
        """Return the order of the row groups and the row of the ring where the first stream begins."""
        if self.evaluation:
            return np.arange(len(self.num_rows_R)), 0
        generator = self._generator(_EPOCH, epoch)
        order = generator.permutation(len(self.num_rows_R))
        return order, int(generator.integers(self.num_rows)) if self.num_remainder else 0

    def _windows(self, epoch: int, stream: int, order: np.ndarray, entry: int) -> list[Window]:
        parts: list[Part] = []
        for start, stop in self._ring_ranges(stream, entry):
            parts += self._parts(order, start, stop)
        windows, position = [], 0
        for index, first in enumerate(range(0, len(parts), self.num_window_row_groups)):
            chosen = tuple(parts[first : first + self.num_window_row_groups])
            windows.append(Window(epoch=epoch, stream=stream, index=index, start=position, parts=chosen))
            position += windows[-1].num_rows
        return windows

    def _ring_ranges(self, stream: int, entry: int) -> list[tuple[int, int]]:
        """Return the stream's row ranges of the epoch's order: one, two where it passes the end of the ring."""
        length = self.num_whole_steps * self.slice_rows
        start = entry + stream * length
        if self.evaluation:
            last = self.num_streams * length + stream * self.slice_rows
            return [(start, start + length), (last, last + self.step_rows(stream, self.num_whole_steps))]
        start %= self.num_rows
        past_end = max(start + length - self.num_rows, 0)
        return [(start, start + length - past_end), (0, past_end)]

    def _parts(self, order: np.ndarray, start: int, stop: int) -> list[Part]:
        """Return rows [start, stop) of the row groups laid end to end in ``order``."""
        if start >= stop:
            return []
        ends = np.cumsum(self.num_rows_R[order])
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        parts = []
        for place in range(int(first), int(last) + 1):
            begin = int(ends[place]) - int(self.num_rows_R[order[place]])
            low, high = max(start, begin) - begin, min(stop, int(ends[place])) - begin
            if low < high:
                parts.append(Part(row_group=int(order[place]), start=low, stop=high))
        return parts


def streams_of_rank(rank: int, world_size: int, num_streams: int) -> list[int]:
    """Return the streams that a rank reads. Raises LoaderError where ranks would get unequal shares."""
    if world_size < 1 or num_streams % world_size:
        divisors = [n for n in range(1, num_streams + 1) if num_streams % n == 0]
        raise LoaderError(
            f"world size {world_size} does not divide num_streams = {num_streams}; "
            f"use a world size of {', '.join(map(str, divisors[:-1]))}{' or ' * (len(divisors) > 1)}{divisors[-1]} "
            "as num_proc"
        )
    if not 0 <= rank < world_size:
        raise LoaderError(f"rank {rank} is outside a world size of {world_size}; ranks count from 0")
    return list(range(rank, num_streams, world_size))
