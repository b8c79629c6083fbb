"""Real processes joined by gloo, kept alive between tests: starting them takes longer than most tests."""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class GroupRanks:
    """``rec.core.tables.Ranks`` over a torch.distributed group."""

    group: Any
    rank: int
    world_size: int
    local_rank: int

    @classmethod
    def of(cls, group: Any) -> "GroupRanks":
        import torch.distributed as dist

        rank = dist.get_rank(group)
        return cls(group, rank, dist.get_world_size(group), rank)

    def all_reduce(self, tensors: Sequence[Any], *, average: bool) -> None:
        import torch
        import torch.distributed as dist

        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(flat, group=self.group)
        if average:
            flat /= self.world_size
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
            tensor.copy_(part.view_as(tensor))

    def all_gather(self, value: Any) -> list[Any]:
        import torch.distributed as dist

        values = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def all_to_all(self, tensor: Any, send_splits: Sequence[int], receive_splits: Sequence[int]) -> Any:
        import torch.distributed as dist

        received = tensor.new_empty(sum(receive_splits), *tensor.shape[1:])
        dist.all_to_all_single(received, tensor, list(receive_splits), list(send_splits), group=self.group)
        return received

    def barrier(self) -> None:
        import torch.distributed as dist

        dist.barrier(self.group)


class RankPool:
    """``run(function, *args)`` calls ``function(ranks, *args)`` in every process and returns the results by rank."""

    def __init__(self, world_size: int):
        context = multiprocessing.get_context("spawn")
        store = tempfile.mktemp(prefix="rec-store-")
        self.pipes, self.processes = [], []
        for rank in range(world_size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, store, rank, world_size), daemon=True)
            process.start()
            # The child holds the only other end, so that its death is the end of the pipe.
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        answers = self.try_run(function, *args)
        failed = [a for a in answers if isinstance(a, BaseException)]
        if failed:
            raise failed[0]
        return answers

    def try_run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Return an exception in the place of the result of each rank that raised."""
        return self.submit(function, *args).wait()

    def submit(self, function: Callable[..., Any], *args: Any) -> "RankPool":
        for pipe in self.pipes:
            pipe.send((function, args))
        return self

    def wait(self) -> list[Any]:
        return [_answer(pipe) for pipe in self.pipes]

    def close(self) -> None:
        for pipe, process in zip(self.pipes, self.processes):
            if process.is_alive():
                pipe.send(None)
            process.join(10)


def _answer(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError as error:
        return error


def _serve(pipe: Any, store: str, rank: int, world_size: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(LOCAL_WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    ranks = GroupRanks.of(dist.group.WORLD)
    while (task := pipe.recv()) is not None:
        function, args = task
        try:
            pipe.send(function(ranks, *args))
        except BaseException as error:
            error.add_note(traceback.format_exc())
            pipe.send(error)
    dist.destroy_process_group()
