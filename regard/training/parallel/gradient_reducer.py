"""Data parallelism: gradients are summed over the processes in buckets, while the backward pass still runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regard.training.parallel.group import Group

BUCKET_SIZE = 2**22  # gradients (numbers, not bytes) that are summed in one call


class GradientReducer:
    """Sums gradients over the processes.

    Gradients are views of a few flat buckets, the last layers' first because they are ready first. A bucket is sent as
    soon as its last gradient is there. Every process sends every bucket once per step and in the same order, even if it
    ran out of memory on the way, and a flag tells all processes about such a failure. (torch's
    DistributedDataParallel would leave the other processes waiting for ever.)
    """

    def __init__(self, parameters: Iterable[Tensor], group: Group) -> None:
        self.group, self.is_last_backward = group, False
        self.buckets: list[Tensor] = []
        self.missing: list[int] = []  # per bucket: gradients that are still to come in this step
        self.members: list[list[Tensor]] = [[]]  # per bucket: its parameters
        self.bucket_of: dict[Tensor, int] = {}
        for parameter in reversed(list(parameters)):
            last = self.members[-1]
            if last and (last[0].dtype != parameter.dtype or sum(p.numel() for p in last) > BUCKET_SIZE):
                self.members.append([])
            self.members[-1].append(parameter)
            self.bucket_of[parameter] = len(self.members) - 1
            parameter.register_post_accumulate_grad_hook(self._gradient_ready)
        for members in self.members:
            # One number more than there are gradients: the count of processes that failed.
            size = sum(parameter.numel() for parameter in members) + 1
            self.buckets.append(torch.zeros(size, dtype=members[0].dtype, device=members[0].device))
        self.clear()

    def clear(self) -> None:
        """Set all gradients to zero, and make them views of the buckets again."""
        for bucket, members in zip(self.buckets, self.members, strict=True):
            bucket.zero_()
            start = 0
            for parameter in members:
                parameter.grad = bucket[start : start + parameter.numel()].view_as(parameter)
                start += parameter.numel()
        self.missing = [len(members) for members in self.members]
        self.sent: list[Any] = []
        self.is_last_backward = False

    def start_sending(self) -> None:
        """Announce that the next backward pass is the step's last, so its gradients are final."""
        self.is_last_backward = True

    def finish(self, *, failed: bool = False) -> bool:
        """Send the remaining buckets, wait for all of them, and return whether any process failed."""
        self.buckets[-1][-1] = float(failed)
        while len(self.sent) < len(self.buckets):
            self._send_next()
        for work in self.sent:
            work.wait()
        self.sent = []  # finished work would keep the threads of the process group alive after its end
        self.is_last_backward = False
        return bool(self.buckets[-1][-1] > 0)

    def _gradient_ready(self, parameter: Tensor) -> None:
        if not self.is_last_backward:
            return
        self.missing[self.bucket_of[parameter]] -= 1
        # `finish` sends the last bucket, because only then is it known whether this process failed.
        while len(self.sent) < len(self.buckets) - 1 and self.missing[len(self.sent)] == 0:
            self._send_next()

    def _send_next(self) -> None:
        self.sent.append(dist.all_reduce(self.buckets[len(self.sent)], async_op=True))
