"""Sharded look-ups and updates against plain torch on the whole batch."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional

from rec.core.errors import IdRangeError
from rec.embedding.collection import ShardedEmbeddings
from rec.embedding.optimizer import EPS, SparseOptimizer
from rec.embedding.planner import PlanLimits, plan_sharding
from rec.embedding.tables import TableSpec, initial_weight

NUM_STEPS = 20
BATCH = 16
TABLES = [
    TableSpec(name="large", num_embeddings=300, embedding_dim=8, feature_names=("large",)),
    TableSpec(name="small", num_embeddings=5, embedding_dim=8, feature_names=("small",)),
    TableSpec(name="shared", num_embeddings=90, embedding_dim=8, feature_names=("left", "right"), pooling="mean"),
    TableSpec(name="tiny", num_embeddings=3, embedding_dim=8, feature_names=("tiny",), pooling="mean"),
]
FEATURES = ["left", "large", "small", "tiny", "right"]
LIMITS = PlanLimits(world_size=1, global_batch_size=BATCH, data_parallel_max_bytes=200, bytes_per_rank=10**9)


def table_of(feature):
    return next(t for t in TABLES if feature in t.feature_names)


def global_batch(step):
    """Return {feature: one list of ids a row} with empty bags and repeated ids."""
    generator = torch.Generator().manual_seed(step)

    def draw(high):
        return int(torch.randint(0, high, (1,), generator=generator))

    return {f: [[draw(table_of(f).num_embeddings) for _ in range(draw(4))] for _ in range(BATCH)] for f in FEATURES}


def to_tensors(bags):
    values = torch.tensor([i for f in FEATURES for bag in bags[f] for i in bag], dtype=torch.int64)
    return values, torch.tensor([[len(bag) for bag in bags[f]] for f in FEATURES], dtype=torch.int32)


def loss_of(embedded_BFE):
    weights = torch.linspace(-1, 1, embedded_BFE[0].numel())
    return (torch.tanh(embedded_BFE.flatten(1) * 20) @ weights).square().mean()


def train_sharded(ranks, name, tables=tuple(TABLES), max_bytes=200):
    """Return (losses, whole weights of rank 0's and this rank's shards, replicas after each step)."""
    optimizer = SparseOptimizer(name=name, learning_rate=0.05)
    limits = LIMITS.model_copy(update={"world_size": ranks.world_size, "data_parallel_max_bytes": max_bytes})
    plan = plan_sharding(tables, limits, optimizer)
    embeddings = ShardedEmbeddings(plan, FEATURES, optimizer, 7, ranks.group)
    losses, replicas = [], []
    for step in range(NUM_STEPS):
        rows = BATCH // ranks.world_size
        mine = {f: bags[ranks.rank * rows :][:rows] for f, bags in global_batch(step).items()}
        loss = loss_of(embeddings(*to_tensors(mine)))
        loss.backward()
        total = loss.detach().reshape(1).clone()
        ranks.all_reduce([total, *(p.grad for p in embeddings.replicated_parameters)], average=True)
        embeddings.step()
        losses.append(total.item())
        replicas.append([p.detach().numpy().tobytes() for p in embeddings.replicated_parameters])
    shards = {s.table: {k: v.numpy().copy() for k, v in s.parts.items()} for s in embeddings.shards()}
    return losses, shards, replicas


def train_whole(name):
    """The same in plain torch: dense gradients of the whole global batch, the published update formulas."""
    weights = {t.name: initial_weight(t, 7).requires_grad_() for t in TABLES}
    sums = {n: torch.zeros(w.shape if name == "adagrad" else w.shape[:1]) for n, w in weights.items()}
    losses = []
    for step in range(NUM_STEPS):
        bags = global_batch(step)
        pooled = [pool(weights[table_of(f).name], bags[f], table_of(f).pooling) for f in FEATURES]
        loss = loss_of(torch.stack(pooled, 1))
        gradients = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            for (table, weight), gradient in zip(weights.items(), gradients):
                scale = torch.ones(1)
                if name == "adagrad":
                    sums[table] += gradient**2
                    scale = sums[table].sqrt() + EPS
                elif name == "rowwise_adagrad":
                    sums[table] += (gradient**2).mean(1)
                    scale = (sums[table].sqrt() + EPS)[:, None]
                weight -= 0.05 * gradient / scale
        losses.append(loss.item())
    return losses, {n: w.detach().numpy() for n, w in weights.items()}, sums


def pool(weight, bags, mode):
    zero = weight.new_zeros(weight.shape[1])
    total = torch.stack([weight[bag].sum(0) if bag else zero for bag in bags])
    counts = torch.tensor([[max(len(bag), 1)] for bag in bags])
    return total / counts if mode == "mean" else total


@pytest.mark.parametrize("name", ["sgd", "adagrad", "rowwise_adagrad"])
def test_two_ranks_train_like_the_whole_batch_in_plain_torch(two_ranks, name):
    results = two_ranks.run(train_sharded, name)
    losses, weights, sums = train_whole(name)
    assert results[0][0] == pytest.approx(losses, rel=1e-4)
    held = results[0][1] | results[1][1]
    assert set(held) == set(weights)
    for table, parts in held.items():
        assert abs(parts["weight"] - weights[table]).max() < 1e-4
        assert set(parts) == ({"weight"} if name == "sgd" else {"weight", "momentum1"})
        if name != "sgd":
            assert parts["momentum1"] == pytest.approx(sums[table].numpy(), rel=1e-3, abs=1e-6)


def test_each_table_has_one_owner(two_ranks):
    results = two_ranks.run(train_sharded, "sgd")
    names = [name for _, shards, _ in results for name in shards]
    assert sorted(names) == sorted(t.name for t in TABLES)


def test_replicas_are_bit_equal_after_every_step(two_ranks):
    results = two_ranks.run(train_sharded, "rowwise_adagrad")
    first, second = results[0][2], results[1][2]
    assert len(first) == NUM_STEPS
    assert len(first[0]) == 2
    assert first == second
    assert first[0] != first[-1]


@pytest.mark.parametrize("max_bytes", [0, 10**6], ids=["all table-wise", "all data-parallel"])
def test_the_placement_of_a_table_does_not_change_its_training(two_ranks, one_rank, max_bytes):
    mixed = one_rank.run(train_sharded, "rowwise_adagrad")[0]
    other = two_ranks.run(train_sharded, "rowwise_adagrad", tuple(TABLES), max_bytes)
    assert other[0][0] == pytest.approx(mixed[0], rel=1e-4)
    for table, parts in (other[0][1] | other[1][1]).items():
        assert abs(parts["weight"] - mixed[1][table]["weight"]).max() < 1e-4


def test_more_ranks_than_tables(three_ranks, one_rank):
    mixed = one_rank.run(train_sharded, "adagrad")[0]
    limited = three_ranks.run(train_rows_of_fifteen)
    alone = one_rank.run(train_rows_of_fifteen)[0]
    assert limited[0] == pytest.approx(alone, rel=1e-4)
    assert limited[0] == limited[2]
    assert mixed[0] != alone


def train_rows_of_fifteen(ranks):
    """Two sharded tables over the group, five rows a rank of three: one rank holds no table."""
    optimizer = SparseOptimizer(name="adagrad", learning_rate=0.05)
    limits = LIMITS.model_copy(update={"world_size": ranks.world_size})
    embeddings = ShardedEmbeddings(plan_sharding(TABLES, limits, optimizer), FEATURES, optimizer, 7, ranks.group)
    losses = []
    for step in range(5):
        rows = 15 // ranks.world_size
        mine = {f: bags[ranks.rank * rows :][:rows] for f, bags in global_batch(step).items()}
        loss = loss_of(embeddings(*to_tensors(mine)))
        loss.backward()
        total = loss.detach().reshape(1).clone()
        ranks.all_reduce([total, *(p.grad for p in embeddings.replicated_parameters)], average=True)
        embeddings.step()
        losses.append(total.item())
    return losses


def lookup(ranks, table, weight, bags, max_bytes):
    """Return pooled vectors and the weight after one SGD step of rate 1 on their sum."""
    optimizer = SparseOptimizer(name="sgd", learning_rate=1.0)
    limits = LIMITS.model_copy(update={"data_parallel_max_bytes": max_bytes})
    plan = plan_sharding([table], limits, optimizer)
    embeddings = ShardedEmbeddings(plan, table.feature_names, optimizer, 0, ranks.group)
    embeddings.load(lambda name, part, rows, columns: torch.tensor(weight)[slice(*rows), slice(*columns)])
    values = torch.tensor([i for bag in bags for i in bag], dtype=torch.int64)
    out_BFE = embeddings(values, torch.tensor([[len(bag) for bag in bags]], dtype=torch.int32))
    # TorchRec divides by the world size of one; the loss is the sum over rows.
    out_BFE.sum().backward()
    embeddings.step()
    return out_BFE[:, 0].detach().numpy(), embeddings.shards()[0].parts["weight"].numpy().copy()


def looked_up(one_rank, weight, bags, pooling, max_bytes):
    """The same with a table of two columns, padded to the four that a table must have."""
    padded = [[*row, 0.0, 0.0] for row in weight]
    table = TableSpec(name="t", num_embeddings=5, embedding_dim=4, feature_names=("t",), pooling=pooling)
    pooled, updated = one_rank.run(lookup, table, padded, bags, max_bytes)[0]
    return pooled[:, :2], (torch.tensor(weight).numpy() - updated[:, :2])


placements = pytest.mark.parametrize("max_bytes", [0, 10**6], ids=["table-wise", "data-parallel"])


@placements
@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_empty_bags_give_the_zero_vector(one_rank, cases, pooling, max_bytes):
    given, expected = read_case(cases / "43_zero_length_bag")
    bags = [
        given["values"][a:b] for a, b in zip([*given["offsets"], len(given["values"])], [*given["offsets"][1:], None])
    ]
    assert bags == [[1, 2], [], [1, 3, 4], []]
    pooled, gradient = looked_up(one_rank, given["weight"], bags, pooling, max_bytes)
    assert pooled == pytest.approx(np.array(expected[pooling]))
    assert np.isfinite(gradient).all()
    pooled, gradient = looked_up(one_rank, given["weight"], [[], []], pooling, max_bytes)
    assert pooled == pytest.approx(np.array(expected["all_empty_batch"]["sum"]))
    assert (gradient == 0).all()


@placements
def test_an_id_that_comes_twice_in_a_bag_counts_twice(one_rank, cases, max_bytes):
    given, expected = read_case(cases / "44_duplicate_ids_multihot")
    pooled, gradient = looked_up(one_rank, given["weight"], given["bags"], "sum", max_bytes)
    assert pooled == pytest.approx(np.array(expected["sum"]))
    for row, values in expected["grad_rows_sum_mode"].items():
        assert gradient[int(row)] == pytest.approx(values)
    pooled, _ = looked_up(one_rank, given["weight"], given["bags"], "mean", max_bytes)
    assert pooled == pytest.approx(np.array(expected["mean"]))


def read_case(folder):
    return json.loads((folder / "in.json").read_text()), json.loads((folder / "expected.json").read_text())


def train_names(ranks, names, max_bytes):
    """Return the names of the shards after a step over one table for each name."""
    tables = [TableSpec(name=n, num_embeddings=9, embedding_dim=4, feature_names=(n,)) for n in names]
    optimizer = SparseOptimizer(name="adagrad", learning_rate=1.0)
    plan = plan_sharding(tables, LIMITS.model_copy(update={"data_parallel_max_bytes": max_bytes}), optimizer)
    embeddings = ShardedEmbeddings(plan, names, optimizer, 0, ranks.group)
    embeddings(torch.arange(len(names)) % 9, torch.ones(len(names), 1, dtype=torch.int32)).sum().backward()
    embeddings.step()
    return sorted(shard.table for shard in embeddings.shards())


@placements
def test_any_name_of_a_column_names_a_table(one_rank, max_bytes):
    names = ["type", "items", "keys", "values", "forward", "user.id", "a b", "weight", "table_1", "it's", "日本"]
    assert one_rank.run(train_names, names, max_bytes)[0] == sorted(names)


def test_an_id_outside_its_table_never_reaches_the_look_up(one_rank):
    with pytest.raises(IdRangeError, match=r"column t: id 5 is outside its table of 5 rows"):
        looked_up(one_rank, [[0.0, 0.0]] * 5, [[4], [5]], "sum", 0)


def test_functional_reference_agrees_with_torch():
    weight = torch.randn(7, 3)
    bags = [[1, 1], [6]]
    offsets = torch.tensor([0, 2])
    expected = functional.embedding_bag(torch.tensor([1, 1, 6]), weight, offsets, mode="mean")
    assert torch.allclose(pool(weight, bags, "mean"), expected)
