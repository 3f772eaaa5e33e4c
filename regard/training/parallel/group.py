"""The processes that train one model: how they find each other and what they exchange.

    with join() as group:                             # reads what `regard train --nproc` or torchrun set; else ALONE
        reducer = GradientReducer(parameters, group)  # "ddp": each process holds the whole model
        sharded = shard(model, group)                 # "fsdp": each process holds a shard of every weight

A global batch is split by rows: process r of W takes every W-th row, starting with row r. Losses are sums divided by
the tokens of the global batch, and gradients are summed, so the number of processes does not change what is learned.
gradient_reducer.py sums gradients, sharding.py shards weights, launch.py starts the processes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its functions would keep the group, and with it its threads
from torch import Tensor, nn

from regard.errors import RegardError, UsageError
from regard.machine import setting
from regard.system import stop_this_process
from regard.training.parallel.launch import MEETING

# How long a process waits for the others. The first one validates alone, which takes a while; a process that dies is
# noticed at once.
TIMEOUT = timedelta(hours=12)


@dataclass(frozen=True)
class Group:
    """The processes of a training run, as one of them sees it. Small numbers are exchanged on the CPU in float64."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0  # among the processes of this machine

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, saves and prints."""
        return self.rank == 0

    def device(self, wanted: torch.device) -> torch.device:
        """Return the device of this process: several processes of one machine use one GPU each."""
        if self.world == 1 or wanted.type != "cuda":
            return wanted
        if self.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"process {self.local_rank + 1} of this machine has no GPU: there are {torch.cuda.device_count()}; "
                f"start fewer processes"
            )
        torch.cuda.set_device(self.local_rank)
        return torch.device("cuda", self.local_rank)

    def sum(self, *numbers: float) -> list[float]:
        """Sum each number over the processes."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def max(self, *numbers: float) -> list[float]:
        """Take the maximum of each number over the processes; for 0 and 1: whether any process says 1."""
        return self._reduce(numbers, dist.ReduceOp.MAX)

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        self.sum(0.0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Collect a CPU tensor, which has the same shape everywhere, from every process."""
        if self.world == 1:
            return [tensor]
        gathered = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(gathered, tensor.contiguous())
        return gathered

    def gather_rows(self, rows: Tensor) -> tuple[Tensor, int]:
        """rows (b, p) of this process -> rows (B, p) of all, and the index of this process's first; differentiable."""
        counts = [int(count) for count in self.sum(*(len(rows) if r == self.rank else 0 for r in range(self.world)))]
        before = sum(counts[: self.rank])
        after = sum(counts) - before - len(rows)
        if self.world == 1:
            return rows, 0
        # Each process puts its rows among zeros, and the sum has them all. Its gradient is the sum of all gradients.
        padded = torch.cat([rows.new_zeros(before, rows.shape[1]), rows, rows.new_zeros(after, rows.shape[1])])
        return _SumOverProcesses.apply(padded), before

    def broadcast_weights(self, model: nn.Module) -> None:
        """Give every process the first one's weights: another processor may have initialised other last bits."""
        if self.world > 1:
            for weight in [*model.parameters(), *model.buffers()]:
                dist.broadcast(weight.data, 0)

    def _reduce(self, numbers: tuple[float, ...], operation: Any) -> list[float]:
        if self.world == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, operation)
        return values.tolist()


ALONE = Group()


class _SumOverProcesses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].clone()
        dist.all_reduce(gradient)
        return gradient


class PeerError(RegardError):
    """The connection to another process broke: it failed, or it was killed."""


@contextmanager
def join() -> Iterator[Group]:
    """Connect to the other processes of this training, if there are any, and disconnect on every way out."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield ALONE
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if meeting := setting(MEETING):
        # A TCPStore would listen on every network interface. A file is only visible to those who may read the folder.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
        _stop_with_the_launcher()
        store: Any = dist.FileStore(meeting, world)  # type: ignore[attr-defined]  # public, but not in __all__
    else:
        # torchrun keeps one store over all its restarts. Without a prefix of its own, an attempt may read the address
        # of a process that died in the attempt before, and wait for it for ever.
        shared, rank, world = next(dist.rendezvous("env://", timeout=TIMEOUT))  # type: ignore[attr-defined]
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt-{attempt}", shared)  # type: ignore[attr-defined]  # public, as above
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    try:
        yield Group(rank, world, int(os.environ.get("LOCAL_RANK", rank)))
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
            raise
        raise PeerError(
            "another process of this training has ended, and its own message says why; run the same command again to "
            "continue from the last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def _stop_with_the_launcher() -> None:
    """Stop, as if by SIGTERM, when the launcher is gone: however it ends, its end of our standard input is closed."""

    def wait_for_end_of_input() -> None:
        while os.read(0, 1):
            pass
        stop_this_process()

    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
