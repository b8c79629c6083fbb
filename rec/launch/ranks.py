"""A group of ranks over Horovod and torch.distributed, opened inside each rank's process."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import horovod.torch as hvd
import psutil
import torch
import torch.distributed as dist

from rec.launch.rank import Pulse

_EXCHANGE_TIMEOUT = timedelta(hours=2)


class HorovodRanks:
    """The ranks of one run: dense averaging and barriers by Horovod, every other exchange by torch.distributed."""

    def __init__(self, pulse: Pulse, phase_s: float):
        self.rank: int = hvd.rank()
        self.world_size: int = hvd.size()
        self.local_rank: int = hvd.local_rank()
        self.step: int | None = None
        self._pulse = pulse
        self._phase_s = phase_s

    def report(
        self, *, phase: str, step: int | None = None, limit_s: float | None = None, **figures: float | int | str
    ) -> None:
        """Tell progress. A rank that does not report again within ``limit_s`` (unset: the launch's ``phase_s``) counts
        as hung, unless it waits for one that is within its own. ``figures`` reach the driver's progress display."""
        self.step = self.step if step is None else step
        self._pulse.progress(phase=phase, step=self.step, limit_s=limit_s or self._phase_s, figures=figures)

    def all_reduce(self, tensors: Sequence[torch.Tensor], *, average: bool) -> None:
        """Reduce each tensor in place over all ranks, in one grouped exchange per dtype, always in the same order."""
        operation = hvd.Average if average else hvd.Sum
        by_dtype: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            assert tensor.dtype != torch.bool, "Horovod has no bool on the wire; reduce integers"
            if tensor.numel():
                by_dtype.setdefault(tensor.dtype, []).append(tensor)
        for dtype, group in by_dtype.items():
            # Horovod has no bfloat16 on the wire.
            wire = [t.detach().float() if dtype == torch.bfloat16 else t.detach().contiguous() for t in group]
            name = f"all_reduce.{operation}.{str(dtype).removeprefix('torch.')}.{len(group)}"
            for tensor, reduced in zip(group, hvd.grouped_allreduce(wire, op=operation, name=name)):
                tensor.detach().copy_(reduced)

    def all_gather(self, value: Any) -> list[Any]:
        """Return every rank's JSON-serialisable value, by rank."""
        content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([len(content)]))
        longest = max(int(s) for s in sizes)
        gathered = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        dist.all_gather(gathered, torch.nn.functional.pad(content, (0, longest - len(content))))
        return [json.loads(bytes(g[: int(s)].numpy())) for g, s in zip(gathered, sizes)]

    def all_to_all(
        self, tensor: torch.Tensor, send_splits: Sequence[int], receive_splits: Sequence[int]
    ) -> torch.Tensor:
        """Send consecutive slices of ``tensor`` along dimension 0 to ranks 0, 1, …; return what arrives, by rank."""
        received = tensor.new_empty((sum(receive_splits), *tensor.shape[1:]))
        dist.all_to_all_single(received, tensor.contiguous(), list(receive_splits), list(send_splits))
        return received

    def barrier(self) -> None:
        """Return when every rank has called it."""
        hvd.barrier()


@contextlib.contextmanager
def horovod_ranks(pulse: Pulse, *, phase_s: float) -> Iterator[HorovodRanks]:
    """Open Horovod and a torch.distributed group over the same processes; close both when the work is done.

    After an error nothing is closed: peers may be gone, and closing would wait for them.
    """
    hvd.init()
    store = _open_group()
    ranks = HorovodRanks(pulse, phase_s)
    ranks.report(phase="run")
    yield ranks
    dist.destroy_process_group()
    # Rank 0 serves the store, so it closes last.
    hvd.barrier()
    del store
    hvd.shutdown()


def _open_group() -> dist.Store:
    """Open the default group at an address that rank 0 chooses and tells the others by Horovod; no fixed port."""
    interface = os.environ["HOROVOD_GLOO_IFACE"]
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    # TorchRec reads the place of a process from these.
    os.environ.update(
        RANK=str(hvd.rank()),
        WORLD_SIZE=str(hvd.size()),
        LOCAL_RANK=str(hvd.local_rank()),
        LOCAL_WORLD_SIZE=str(hvd.local_size()),
    )
    store, address = None, None
    if hvd.rank() == 0:
        host = next(a.address for a in psutil.net_if_addrs()[interface] if a.family.name == "AF_INET")
        store = dist.TCPStore(host, 0, hvd.size(), is_master=True, wait_for_workers=False, timeout=_EXCHANGE_TIMEOUT)
        address = (host, store.port)
    host, port = hvd.broadcast_object(address, root_rank=0, name="group_address")
    if store is None:
        store = dist.TCPStore(host, port, hvd.size(), is_master=False, timeout=_EXCHANGE_TIMEOUT)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    dist.init_process_group(backend, store=store, rank=hvd.rank(), world_size=hvd.size(), timeout=_EXCHANGE_TIMEOUT)
    return store
