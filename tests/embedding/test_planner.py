"""Sharding plans: balance, estimates, refusals."""

import pytest

from rec.core.errors import ConfigError, TrainingError
from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.planner import PlanLimits, ShardingPlan, plan_sharding
from rec.embedding.tables import TableSpec, initial_weight

ADAGRAD = SparseOptimizer(name="adagrad", learning_rate=0.1)
LIMITS = PlanLimits(world_size=4, global_batch_size=1024, data_parallel_max_bytes=4096, bytes_per_rank=10**9)


def spec(name, num_embeddings, embedding_dim=16, feature_names=None):
    return TableSpec(
        name=name, num_embeddings=num_embeddings, embedding_dim=embedding_dim, feature_names=feature_names or (name,)
    )


TABLES = [spec("tiny", 10), *(spec(f"t{k}", 10_000 * (k + 1), 16 * (1 + k % 3)) for k in range(11)), spec("edge", 64)]


def test_every_table_is_placed_once_and_small_ones_everywhere():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    assert [p.table for p in plan.placements] == TABLES
    assert {p.table.name: p.ranks for p in plan.placed("data_parallel")} == {"tiny": (0, 1, 2, 3), "edge": (0, 1, 2, 3)}
    assert all(len(p.ranks) == 1 for p in plan.placed("table_wise"))


def test_ranks_are_loaded_evenly():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    loads = [plan.ms_of_rank(rank) for rank in range(4)]
    dearest = max(p.estimated_ms for p in plan.placed("table_wise"))
    assert max(loads) - min(loads) <= dearest


def test_estimated_bytes_are_weight_and_state_and_for_replicas_the_gradient():
    plan = plan_sharding([spec("tiny", 10), spec("large", 1000)], LIMITS, ADAGRAD)
    assert [p.estimated_bytes for p in plan.placements] == [3 * 10 * 16 * 4, 2 * 1000 * 16 * 4]
    row_wise = plan_sharding([spec("large", 1000)], LIMITS, SparseOptimizer(name="rowwise_adagrad", learning_rate=0.1))
    assert row_wise.placements[0].estimated_bytes == 1000 * 16 * 4 + 1000 * 4
    plain = plan_sharding([spec("large", 1000)], LIMITS, SparseOptimizer(name="sgd", learning_rate=0.1))
    assert plain.bytes_of_rank(0) == 1000 * 16 * 4
    assert plain.bytes_of_rank(1) == 0


def test_estimated_ms_grow_with_batch_and_width():
    def ms(batch, width):
        limits = LIMITS.model_copy(update={"global_batch_size": batch})
        return plan_sharding([spec("t", 1000, width)], limits, ADAGRAD).placements[0].estimated_ms

    assert 0 < ms(1024, 16) < ms(1024, 64)
    assert ms(2048, 16) == pytest.approx(2 * ms(1024, 16), rel=1e-3)


def test_a_plan_survives_json():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    assert ShardingPlan.model_validate_json(plan.model_dump_json()) == plan


def test_the_same_plan_comes_from_any_order_of_equal_tables():
    tables = [spec(name, 5000) for name in "abcdef"]
    ranks = {p.table.name: p.ranks for p in plan_sharding(tables, LIMITS, ADAGRAD).placements}
    again = {p.table.name: p.ranks for p in plan_sharding(tables[::-1], LIMITS, ADAGRAD).placements}
    assert ranks == again


def changed(plan, **update):
    first, *rest = plan.placements
    return plan.model_copy(update={"placements": (first.model_copy(update=update), *rest)})


def test_a_table_that_is_not_placed_is_refused():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    lost = plan.model_copy(update={"placements": plan.placements[:-1]})
    with pytest.raises(TrainingError, match="table 'edge' of 64 x 16 is placed 0 times, once is asked for"):
        lost.check(TABLES, 10**9)


def test_a_table_that_is_placed_twice_is_refused():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    twice = plan.model_copy(update={"placements": (*plan.placements, plan.placements[3])})
    with pytest.raises(TrainingError, match=r"table 't2' .* is placed 2 times"):
        twice.check(TABLES, 10**9)


def test_a_table_that_the_model_has_not_is_refused():
    plan = plan_sharding(TABLES, LIMITS, ADAGRAD)
    with pytest.raises(TrainingError, match="table 'edge' is placed, but the model has no such table"):
        plan.check(TABLES[:-1], 10**9)


@pytest.mark.parametrize(
    ("sharding", "ranks"), [("table_wise", (0, 1)), ("table_wise", (4,)), ("data_parallel", (0, 1)), ("table_wise", ())]
)
def test_ranks_that_do_not_fit_the_sharding_are_refused(sharding, ranks):
    plan = changed(plan_sharding(TABLES, LIMITS, ADAGRAD), sharding=sharding, ranks=ranks)
    with pytest.raises(TrainingError, match=f"table 'tiny' is {sharding} on ranks .* of a group of 4"):
        plan.check(TABLES, 10**9)


def test_a_rank_that_would_hold_too_much_is_named_with_its_largest_table():
    limits = LIMITS.model_copy(update={"bytes_per_rank": 100_000})
    message = r"rank \d would hold \d+ bytes of tables, 'large' alone 1280000, and may hold 100000; add ranks"
    with pytest.raises(TrainingError, match=message):
        plan_sharding([spec("large", 10_000)], limits, ADAGRAD)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([spec("a", 10), spec("a", 20, feature_names=("b",))], "table 'a' appears 2 times"),
        ([spec("a", 10), spec("b", 20, feature_names=("a",))], "feature 'a' appears 2 times"),
    ],
)
def test_duplicate_names_are_refused(tables, message):
    with pytest.raises(ConfigError, match=message):
        plan_sharding(tables, LIMITS, ADAGRAD)


def test_initial_weights_depend_on_seed_and_name_alone():
    weight = initial_weight(spec("a", 400), 1)
    assert weight.equal(initial_weight(spec("a", 400, feature_names=("x", "y")), 1))
    assert not weight.equal(initial_weight(spec("a", 400), 2))
    assert not weight.equal(initial_weight(spec("b", 400), 1))
    assert weight.abs().max() <= 400**-0.5
    assert weight.std() == pytest.approx(400**-0.5 / 3**0.5, rel=0.05)


def test_a_table_goes_where_there_is_room_and_not_where_there_is_least_to_do():
    tables = [spec("large", 1000), *(spec(name, 10) for name in "abc")]
    limits = LIMITS.model_copy(update={"world_size": 2, "data_parallel_max_bytes": 0, "bytes_per_rank": 128_640})
    plan = plan_sharding(tables, limits, ADAGRAD)
    [large] = next(p.ranks for p in plan.placements if p.table.name == "large")
    assert [p.ranks for p in plan.placements if p.table.name != "large"] == [(1 - large,)] * 3
