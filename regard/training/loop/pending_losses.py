"""What each step found, told as it arrives: a GPU works on while its numbers are on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

LAG = 16  # steps that a GPU may be behind before it is waited for


class Taken(NamedTuple):
    """A step that was taken."""

    step: int
    rate: float  # of learning
    counted: int  # what its loss is divided by
    samples: list[int]
    epoch: int


class Watch:
    """Steps on their way; `arrived` gives them back in order, with loss and norm of the gradient as numbers."""

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.waiting: deque[tuple[Taken, Tensor, torch.cuda.Event | None]] = deque()

    def add(self, taken: Taken, found: Tensor) -> None:
        """`found` (2,): loss and norm, on the device; it may be overwritten by the next step."""
        if not found.is_cuda:
            self.waiting.append((taken, found, None))
            return
        here = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
        here.copy_(found, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self.waiting.append((taken, here, event))

    def arrived(self, *, all: bool = False) -> Iterator[tuple[Taken, float, float]]:
        """The steps that are done; with `all` every one, and where too many are waiting, the first of them."""
        while self.waiting:
            taken, found, event = self.waiting[0]
            if event is not None and not event.query():
                if not all and len(self.waiting) <= self.lag:
                    return
                event.synchronize()
            self.waiting.popleft()
            nll, norm = found.tolist()
            yield taken, nll, norm
