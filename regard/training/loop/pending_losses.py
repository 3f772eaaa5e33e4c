"""Losses that are still on their way from the GPU; Python reads them when they arrive, so the GPU never waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

MAX_PENDING = 16  # steps that a GPU may be behind before Python waits for it


class QueuedStep(NamedTuple):
    """What Python knows about a step when it is queued; messages about the step quote it later."""

    step: int
    rate: float  # learning rate
    divisor: int  # tokens or samples that its loss is divided by
    samples: list[int]
    epoch: int


class PendingLosses:
    """A queue of steps whose loss and gradient norm are being computed; `arrived` returns them in order."""

    def __init__(self, max_pending: int) -> None:
        self.max_pending = max_pending
        self.queue: deque[tuple[QueuedStep, Tensor, torch.cuda.Event | None]] = deque()

    def add(self, record: QueuedStep, values: Tensor) -> None:
        """Queue a step. `values` (2,) are its nll and gradient norm; the next step may overwrite that tensor."""
        if not values.is_cuda:
            self.queue.append((record, values, None))
            return
        on_cpu = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        on_cpu.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.queue.append((record, on_cpu, event))

    def arrived(self, *, wait: bool = False) -> Iterator[tuple[QueuedStep, float, float]]:
        """Yield the steps that are done, as (record, nll, gradient norm).

        With `wait`, yield every queued step. Otherwise wait only for the oldest ones, while too many are pending.
        """
        while self.queue:
            record, values, event = self.queue[0]
            if event is not None and not event.query():
                if not wait and len(self.queue) <= self.max_pending:
                    return
                event.synchronize()
            self.queue.popleft()
            nll, norm = values.tolist()
            yield record, nll, norm
