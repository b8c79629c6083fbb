"""What ranks run in the launch tests; importable by name, as every rank's program must be."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from rec.core.errors import LoaderError


def exchange(ranks, text):
    """Use every exchange once; return what came back and where the rank ran."""
    single = torch.full((3,), float(ranks.rank + 1))
    double = torch.arange(2, dtype=torch.float64) * (ranks.rank + 1)
    half = torch.full((2,), float(ranks.rank), dtype=torch.bfloat16)
    column = torch.full((2, 2), float(ranks.rank)).t()
    ranks.all_reduce([single, double, torch.empty(0), half, column], average=True)
    total = torch.tensor([ranks.rank + 1])
    ranks.all_reduce([total], average=False)
    sends = [1, 2] if ranks.rank == 0 else [3, 1]
    receives = [1, 3] if ranks.rank == 0 else [2, 1]
    arrived = ranks.all_to_all(torch.arange(sum(sends)) + 10 * ranks.rank, sends, receives)
    for step in range(3):
        ranks.report(phase="train", step=step, loss=1.0 - 0.1 * step)
        time.sleep(0.6)
    ranks.barrier()
    return {
        "pid": os.getpid(),
        "rank": (ranks.rank, ranks.world_size, ranks.local_rank),
        "reduced": [single.tolist(), double.tolist(), half.float().tolist(), column.tolist(), total.tolist()],
        "gathered": ranks.all_gather({"rank": ranks.rank, "text": text * ranks.rank}),
        "arrived": arrived.tolist(),
        "torch_group": (dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_WORLD_SIZE"]),
        "threads": (torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]),
    }


def alone(ranks):
    """Use every exchange of a world of one."""
    tensor = torch.tensor([2.0])
    ranks.all_reduce([tensor], average=True)
    ranks.barrier()
    return tensor.tolist(), ranks.all_gather("x"), ranks.all_to_all(torch.arange(2), [2], [2]).tolist()


def misbehave(ranks, kind, guilty, folder):
    """Take three steps together, then rank ``guilty`` does ``kind`` while the others wait for it."""
    Path(folder, str(ranks.rank)).write_text(f"{os.getpid()} {os.getppid()}")
    for step in range(3):
        ranks.report(phase="train", step=step)
        ranks.all_reduce([torch.ones(4)], average=True)
    if ranks.rank == guilty:
        KINDS[kind]()
    ranks.all_reduce([torch.ones(4)], average=True)
    dist.all_reduce(torch.ones(1))


def _raise():
    raise KeyError("no such thing")


def _raise_mendable():
    raise LoaderError("num_streams=16: 3 ranks do not divide it; use 1, 2, 4, 8 or 16")


def _kill():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_supervisor():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def _stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def _stop_supervisor():
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(300)


def _spin():
    while True:
        pass


def _exit():
    sys.stdout.write("leaving early\n")
    sys.stdout.flush()
    os._exit(3)


KINDS = {
    "raise": _raise,
    "raise_mendable": _raise_mendable,
    "kill": _kill,
    "kill_supervisor": _kill_supervisor,
    "stop": _stop,
    "stop_supervisor": _stop_supervisor,
    "spin": _spin,
    "exit": _exit,
}


def wait_for_ever(ranks, folder):
    """Report steps until killed."""
    Path(folder, str(ranks.rank)).write_text(f"{os.getpid()} {os.getppid()}")
    for step in range(10**6):
        ranks.report(phase="train", step=step)
        ranks.barrier()
        time.sleep(0.05)


def long_phase(ranks):
    """Rank 0 works for longer than the usual limit and says so; the others wait for it in an exchange."""
    if ranks.rank == 0:
        ranks.report(phase="checkpoint", step=7, limit_s=60.0)
        time.sleep(14.0)
        ranks.report(phase="train", step=8)
    ranks.barrier()
    return socket.gethostname()
