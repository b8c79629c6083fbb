"""One rank's part of the model: dense weights, embeddings and their optimizers, and what one step does to them."""

import os
from collections.abc import Callable

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from rec.core.errors import TrainingError
from rec.core.schema import FeatureSchema
from rec.core.tables import Ranks
from rec.data.batch import Batch
from rec.embedding.collection import ShardedEmbeddings, group_device
from rec.embedding.optimizer import SparseOptimizer
from rec.embedding.planner import PlanLimits, ShardingPlan, plan_sharding
from rec.embedding.tables import stream_seed
from rec.model.config import ModelConfig
from rec.model.registry import build_model
from rec.train.config import TrainConfig

_DENSE_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
}


class Learner:
    """Dense weights and data-parallel tables have one owner: they are averaged once a step, in one grouped exchange
    after that of the sharded tables, so that all ranks apply the same bits."""

    def __init__(self, model_config: ModelConfig, config: TrainConfig, schema: FeatureSchema, ranks: Ranks):
        self.config, self.ranks = config, ranks
        group = dist.group.WORLD
        assert group is not None, "torch.distributed is not initialised"
        self.device = group_device(group)
        self.model = build_model(model_config, schema, config.seed).to(self.device)
        sparse_optimizer = SparseOptimizer(name=config.sparse_optimizer, learning_rate=config.sparse_learning_rate)
        self.plan = self._plan(schema, sparse_optimizer)
        names = [c.name for c in schema.sparse]
        self.embeddings = ShardedEmbeddings(self.plan, names, sparse_optimizer, config.seed, group)
        self.dense_optimizer = _DENSE_OPTIMIZERS[config.dense_optimizer](
            self.model.parameters(), lr=config.dense_learning_rate, weight_decay=config.dense_weight_decay
        )

    def train_step(self, batch: Batch, step: int) -> float:
        """Update all weights by the mean loss over the global batch and return it. Raises TrainingError where it is
        not finite, on every rank alike and before a dense weight changes."""
        torch.manual_seed(stream_seed(self.config.seed, "step", self.ranks.rank, step))
        label_B, weight_B = batch.label_B.to(self.device), batch.weight_B.to(self.device)
        logits_B = self._logits(batch)
        losses_B = functional.binary_cross_entropy_with_logits(logits_B, label_B, weight=weight_B, reduction="none")
        loss = losses_B.mean()
        loss.backward()
        mean_loss = loss.detach().reshape(1).clone()
        self.ranks.all_reduce([mean_loss, *self._replicated_gradients()], average=True)
        if not torch.isfinite(mean_loss).item():
            self._refuse(mean_loss.item(), step)
        self.dense_optimizer.step()
        self.dense_optimizer.zero_grad()
        self.embeddings.step()
        return mean_loss.item()

    @torch.no_grad()
    def score(self, batch: Batch) -> torch.Tensor:
        """Return float32 logits_B on the CPU, those of padded rows included."""
        return self._logits(batch).float().cpu()

    def dense_state(self) -> dict[str, torch.Tensor]:
        """Return dense weights as ``weight/NAME`` and their optimizer's state as ``STATE/NAME``."""
        state = {f"weight/{name}": p.detach() for name, p in self.model.named_parameters()}
        for name, parameter in self.model.named_parameters():
            for part, tensor in self.dense_optimizer.state[parameter].items():
                state[f"{part}/{name}"] = tensor
        return state

    @torch.no_grad()
    def load_dense_state(self, state: dict[str, torch.Tensor]) -> None:
        parameters = dict(self.model.named_parameters())
        for key, tensor in state.items():
            part, _, name = key.partition("/")
            if part == "weight":
                parameters[name].copy_(tensor)
            else:
                # Adam counts steps in a CPU tensor, whatever the device.
                device = "cpu" if part == "step" else self.device
                self.dense_optimizer.state[parameters[name]][part] = tensor.to(device)

    def _logits(self, batch: Batch) -> torch.Tensor:
        embedded_BFE = self.embeddings(batch.values_N, batch.lengths_FB)
        return self.model(batch.dense_BD.to(self.device), embedded_BFE)

    def _replicated_gradients(self) -> list[torch.Tensor]:
        parameters: list[nn.Parameter] = [*self.model.parameters(), *self.embeddings.replicated_parameters]
        gradients = [p.grad for p in parameters if p.grad is not None]
        assert len(gradients) == len(parameters), "a weight took no part in the loss"
        return gradients

    def _plan(self, schema: FeatureSchema, sparse_optimizer: SparseOptimizer) -> ShardingPlan:
        limits = PlanLimits(
            world_size=self.ranks.world_size,
            global_batch_size=self.config.global_batch_size,
            data_parallel_max_bytes=self.config.data_parallel_max_bytes,
            bytes_per_rank=self.config.embedding_bytes_per_rank or device_memory_bytes(self.device),
        )
        return plan_sharding(self.model.tables(schema), limits, sparse_optimizer)

    def _refuse(self, loss: float, step: int) -> None:
        raise TrainingError(
            f"loss is {loss} at step {step}; lower dense_learning_rate = {self.config.dense_learning_rate:g} or "
            f"sparse_learning_rate = {self.config.sparse_learning_rate:g}"
        )


def device_memory_bytes(device: torch.device) -> int:
    """Return one rank's share of the memory that its tables live in."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
