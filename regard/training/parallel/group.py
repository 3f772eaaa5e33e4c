"""Several processes that train one model: how they meet, what they agree on, how their gradients become one.

    group = join()                    # by the variables that `regard train --nproc` or torchrun set; else ALONE
    gradients = Summed(parameters, group)     # each process holds the whole model ("ddp")
    parted = part(model, loss, group)         # each holds a part of every weight ("fsdp")

A global batch is shared out by rows: process r of W takes every W-th, from the r-th on. Losses are sums divided by the
tokens of the global batch, and gradients are summed, so the number of processes does not change what is learnt.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.errors import RegardError, UsageError
from regard.layers.block import Block
from regard.machine import setting
from regard.text.batches.batch import Batch
from regard.training.loop.losses import Loss, Objective

MEETING = "REGARD_MEETING"  # the file over which the processes of one machine find each other
PATIENCE = timedelta(hours=12)  # for the others: the first process validates alone. One that dies is noticed at once
BUCKET = 2**22  # numbers that are summed over the processes at a time


@dataclass(frozen=True)
class Group:
    """The processes of a training, as one of them sees it. Small numbers travel over the CPU, exactly."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0  # among those of this machine

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, saves and talks."""
        return self.rank == 0

    def device(self, wanted: torch.device) -> torch.device:
        """The device of this process: with several on one machine, each takes a GPU of its own."""
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
        """Each number summed over the processes."""
        return self._reduced(numbers, dist.ReduceOp.SUM)

    def most(self, *numbers: float) -> list[float]:
        """The largest that any process gives, of each number; of 0 and 1: whether any says so."""
        return self._reduced(numbers, dist.ReduceOp.MAX)

    def wait(self) -> None:
        """Go on when all are here."""
        self.sum(0.0)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """A CPU tensor of every process; they have one shape."""
        if self.world == 1:
            return [tensor]
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(found, tensor.contiguous())
        return found

    def together(self, rows: Tensor) -> tuple[Tensor, int]:
        """rows (b, p) of this process -> (B, p) of all, and the place of the first own one; differentiable."""
        counts = [int(count) for count in self.sum(*(len(rows) if r == self.rank else 0 for r in range(self.world)))]
        before = sum(counts[: self.rank])
        after = sum(counts) - before - len(rows)
        if self.world == 1:
            return rows, 0
        # The sum of rows that stand at their own places among zeros; its gradient is the sum of all processes'.
        placed = torch.cat([rows.new_zeros(before, rows.shape[1]), rows, rows.new_zeros(after, rows.shape[1])])
        return _SumOverProcesses.apply(placed), before

    def same_start(self, model: nn.Module) -> None:
        """Give every process the first one's weights: another processor may have drawn other last bits."""
        if self.world > 1:
            for weight in [*model.parameters(), *model.buffers()]:
                dist.broadcast(weight.data, 0)

    def _reduced(self, numbers: tuple[float, ...], how: Any) -> list[float]:
        if self.world == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, how)
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
    """The connection to another process broke: it failed, or was killed."""


@contextmanager
def join() -> Iterator[Group]:
    """Meet the other processes of this training, where there are any, and part from them in the end."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield ALONE
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if meeting := setting(MEETING):
        # A TCPStore would listen on every interface; a file is seen by those only who may read the run's folder.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
        _leave_with_the_launcher()
        store: Any = dist.FileStore(meeting, world)  # type: ignore[attr-defined]  # public, though not listed
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    else:
        # torchrun keeps one store over all its restarts: without a name of its own, an attempt may find in it the
        # address of a process that died in the one before, and wait for it for ever.
        met, rank, world = next(dist.rendezvous("env://", timeout=PATIENCE))  # type: ignore[attr-defined]
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"attempt-{attempt}", met)  # type: ignore[attr-defined]  # public, though not listed
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=PATIENCE)
    try:
        yield Group(rank, world, int(os.environ.get("LOCAL_RANK", rank)))
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
            raise
        raise PeerError(
            "another process of this training has ended, and its own message says why; the same command goes on from "
            "the last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def _leave_with_the_launcher() -> None:
    """Stop, as by SIGTERM, when the launcher is gone: its end of our standard input closes then, however it ended."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


class Summed:
    """Gradients that are summed over the processes while the backward pass still runs.

    They lie in a few long arrays, the last layers' first, for those are ready first; one is sent when its last gradient
    is there. Every process sends every array once a step and in the same order, also one that ran out of memory on the
    way: torch's DistributedDataParallel would leave the others waiting for ever. `failed` tells all of them.
    """

    def __init__(self, parameters: Iterable[Tensor], group: Group) -> None:
        self.group, self.sending = group, False
        self.arrays: list[Tensor] = []
        self.missing: list[int] = []  # gradients of each array that are still to come in this step
        self.members: list[list[Tensor]] = [[]]
        self.place: dict[Tensor, int] = {}
        for parameter in reversed(list(parameters)):
            last = self.members[-1]
            if last and (last[0].dtype != parameter.dtype or sum(p.numel() for p in last) > BUCKET):
                self.members.append([])
            self.members[-1].append(parameter)
            self.place[parameter] = len(self.members) - 1
            parameter.register_post_accumulate_grad_hook(self._arrived)
        for members in self.members:
            one = members[0]
            # One number more than the gradients: how many processes could not do their part.
            size = sum(parameter.numel() for parameter in members) + 1
            self.arrays.append(torch.zeros(size, dtype=one.dtype, device=one.device))
        self.clear()

    def clear(self) -> None:
        """Set all gradients to zero; they are views of the arrays."""
        for array, members in zip(self.arrays, self.members, strict=True):
            array.zero_()
            start = 0
            for parameter in members:
                parameter.grad = array[start : start + parameter.numel()].view_as(parameter)
                start += parameter.numel()
        self.missing = [len(members) for members in self.members]
        self.work: list[Any] = []
        self.sending = False

    def send(self) -> None:
        """From now on gradients are final: the next backward pass is the step's last."""
        self.sending = True

    def finish(self, *, failed: bool = False) -> bool:
        """Send what is left and wait for all; whether any process failed."""
        self.arrays[-1][-1] = float(failed)
        while len(self.work) < len(self.arrays):
            self._send_next()
        for work in self.work:
            work.wait()
        return bool(self.arrays[-1][-1] > 0)

    def _arrived(self, parameter: Tensor) -> None:
        if not self.sending:
            return
        self.missing[self.place[parameter]] -= 1
        # The last array waits for `finish`, which knows whether all went well.
        while len(self.work) < len(self.arrays) - 1 and self.missing[len(self.work)] == 0:
            self._send_next()

    def _send_next(self) -> None:
        self.work.append(dist.all_reduce(self.arrays[len(self.work)], async_op=True))


class Parted(nn.Module):
    """A model and its loss as one module, each block's weights spread over the processes (FSDP2).

    Zhao et al. 2023. A block's weights are gathered when its turn comes, and its gradients are summed to their owners.
    """

    def __init__(self, model: nn.Module, loss: Objective) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Loss:
        return self.loss(self.model, batch)


def part(model: nn.Module, loss: Objective, group: Group) -> Callable[[nn.Module, Batch], Loss]:
    """Spread the model's weights over the processes; the result stands in for the loss function."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (group.world,))
    for module in list(model.modules()):
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    parted = Parted(model, loss)
    fully_shard(parted, mesh=mesh)

    def parted_loss(model: nn.Module, batch: Batch) -> Loss:
        found = parted(batch)
        # FSDP2 takes the mean over the processes, and we want the sum.
        return found._replace(total=found.total * group.world)

    return parted_loss


def whole(tensor: Tensor) -> Tensor:
    """The full value of a weight that may be spread over the processes; then all of them must ask."""
    value: Any = tensor.detach()
    return value.full_tensor() if is_spread(value) else value


def spread(value: Tensor, like: Any) -> Tensor:
    """The full value as `like` lies: the part of this process where that one is spread."""
    if not is_spread(like):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def is_spread(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")
