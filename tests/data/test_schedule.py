"""Properties of an epoch's order over any row groups, streams, batch sizes and world sizes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rec.core.errors import LoaderError
from rec.data.schedule import Schedule, streams_of_rank


@st.composite
def schedules(draw, evaluation: bool = False):
    num_streams = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]))
    global_batch_size = num_streams * draw(st.integers(1, 5))
    num_rows = draw(st.lists(st.integers(0, 60), min_size=1, max_size=12))
    if not evaluation and sum(num_rows) < global_batch_size:
        num_rows.append(global_batch_size)
    return Schedule(
        num_rows_R=np.array(num_rows),
        global_batch_size=global_batch_size,
        num_streams=num_streams,
        num_window_row_groups=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 2**40)),
        evaluation=evaluation,
    )


def steps_of(schedule: Schedule, epoch: int, streams: list[int], first_step: int = 0) -> list[list[tuple[int, int]]]:
    """Return the (row group, row) pairs of each step, each stream's windows shuffled and sliced."""
    rows = {stream: [] for stream in streams}
    offset = {}
    for window in schedule.plan(epoch, first_step, streams):
        pairs = [(part.row_group, row) for part in window.parts for row in range(part.start, part.stop)]
        order = schedule.permutation(window)
        offset.setdefault(window.stream, window.start)
        rows[window.stream] += pairs if order is None else [pairs[k] for k in order]
    steps = []
    for step in range(first_step, schedule.steps_per_epoch):
        taken = []
        for stream in streams:
            start = step * schedule.slice_rows - offset.get(stream, 0)
            taken += rows[stream][start : start + schedule.step_rows(stream, step)]
        steps.append(taken)
    return steps


def all_streams(schedule: Schedule) -> list[int]:
    return list(range(schedule.num_streams))


def all_rows(schedule: Schedule) -> set[tuple[int, int]]:
    return {(group, row) for group, size in enumerate(schedule.num_rows_R) for row in range(size)}


@given(schedules(), st.integers(0, 3))
def test_steps_are_whole_disjoint_and_leave_out_less_than_one_step(schedule, epoch):
    steps = steps_of(schedule, epoch, all_streams(schedule))
    used = [row for step in steps for row in step]
    assert {len(step) for step in steps} == {schedule.global_batch_size}
    assert len(steps) == schedule.num_rows // schedule.global_batch_size
    assert len(set(used)) == len(used)
    assert set(used) <= all_rows(schedule)
    assert len(all_rows(schedule)) - len(used) == schedule.num_remainder < schedule.global_batch_size


@given(schedules(), st.integers(0, 3))
def test_every_world_size_that_fits_sees_the_same_global_batches_in_equal_shares(schedule, epoch):
    whole = [sorted(step) for step in steps_of(schedule, epoch, all_streams(schedule))]
    for world_size in [n for n in range(1, schedule.num_streams + 1) if schedule.num_streams % n == 0]:
        ranks = [
            steps_of(schedule, epoch, streams_of_rank(rank, world_size, schedule.num_streams))
            for rank in range(world_size)
        ]
        assert {len(step) for rank in ranks for step in rank} == {schedule.global_batch_size // world_size}
        assert [sorted(row for share in step for row in share) for step in zip(*ranks, strict=True)] == whole


@given(schedules(), st.integers(0, 3), st.data())
def test_plan_from_any_step_continues_the_epoch_and_reads_no_window_before_it(schedule, epoch, data):
    step = data.draw(st.integers(0, schedule.steps_per_epoch - 1))
    streams = all_streams(schedule)
    assert steps_of(schedule, epoch, streams, step) == steps_of(schedule, epoch, streams)[step:]
    skipped = step * schedule.slice_rows
    for window in schedule.plan(epoch, step, streams):
        assert window.start + window.num_rows > skipped


@given(schedules(), st.integers(0, 3), st.data())
def test_windows_are_planned_in_the_order_steps_need_them(schedule, epoch, data):
    first_step = data.draw(st.integers(0, schedule.steps_per_epoch - 1))
    streams = all_streams(schedule)
    plan = iter(schedule.plan(epoch, first_step, streams))
    held = dict.fromkeys(streams, first_step * schedule.slice_rows)
    for step in range(first_step, schedule.steps_per_epoch):
        for stream in streams:
            while held[stream] < (step + 1) * schedule.slice_rows:
                window = next(plan)
                assert window.stream == stream
                assert window.num_rows <= schedule.max_window_rows
                held[stream] = window.start + window.num_rows
    assert next(plan, None) is None


@given(schedules(evaluation=True))
def test_evaluation_reads_every_row_once_and_only_the_last_step_is_short(schedule):
    steps = steps_of(schedule, 0, all_streams(schedule))
    used = [row for step in steps for row in step]
    assert sorted(used) == sorted(all_rows(schedule))
    assert {len(step) for step in steps[:-1]} <= {schedule.global_batch_size}


def schedule_of(num_rows: list[int], **changed) -> Schedule:
    values = {"global_batch_size": 8, "num_streams": 4, "num_window_row_groups": 1, "seed": 3} | changed
    return Schedule(num_rows_R=np.array(num_rows), **values)


@pytest.mark.parametrize(
    "changed", [{"seed": 4}, {"global_batch_size": 12}, {"num_streams": 2}, {"num_window_row_groups": 2}]
)
def test_order_is_a_function_of_every_setting_the_recipe_names(changed):
    def order(schedule):
        return steps_of(schedule, 0, all_streams(schedule))

    sizes = [13, 5, 22, 8, 17]
    assert order(schedule_of(sizes)) == order(schedule_of(sizes))
    assert order(schedule_of(sizes, **changed)) != order(schedule_of(sizes))


def test_remainder_differs_by_epoch_even_within_one_row_group():
    schedule = schedule_of([15])
    left_out = []
    for epoch in range(20):
        used = {row for step in steps_of(schedule, epoch, all_streams(schedule)) for row in step}
        left_out.append(frozenset(all_rows(schedule) - used))
    assert len(set(left_out)) > 5
    assert set().union(*left_out) == all_rows(schedule)


def test_shards_share_one_order_before_the_split(cases):
    """Ranks that shuffle each by its own seed read some row groups twice and others never."""
    given_case = json.loads((cases / "31_shard_seed/row_groups.json").read_text())
    expected = json.loads((cases / "31_shard_seed/expected.json").read_text())
    ranks, names = given_case["ranks"], given_case["row_groups"]
    schedule = schedule_of([10] * len(names), num_streams=ranks, global_batch_size=ranks, seed=given_case["seed"])
    orders = []
    for epoch in range(4):
        shards = [
            {row for step in steps_of(schedule, epoch, streams_of_rank(rank, ranks, ranks)) for row in step}
            for rank in range(ranks)
        ]
        union = set().union(*shards)
        assert (sum(map(len, shards)) == len(union)) is expected["pairwise_disjoint"]
        assert len({group for group, _ in union}) == expected["union_size"]
        assert union == all_rows(schedule)
        orders.append(tuple(window.parts[0].row_group for window in schedule.plan(epoch, 0, all_streams(schedule))))
    assert len(set(orders)) == 4


@pytest.mark.parametrize(
    ("world_size", "divisors"), [(3, "1, 2, 4, 8 or 16"), (32, "1, 2, 4, 8 or 16"), (0, "16"), (-2, "16")]
)
def test_world_size_that_does_not_divide_the_streams_is_refused_naming_the_divisors(world_size, divisors):
    with pytest.raises(LoaderError, match=f"world size {world_size} does not divide num_streams = 16.*{divisors}"):
        streams_of_rank(0, world_size, 16)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(LoaderError, match="rank 2 is outside a world size of 2"):
        streams_of_rank(2, 2, 16)
