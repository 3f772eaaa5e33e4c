"""Exponential moving average (EMA) of the weights: a smoother model than the one that a single step leaves behind.

Polyak & Juditsky 1992. The average is validated and saved as the model; training continues with the raw weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.training.parallel.sharding import shard_like


class Ema:
    """After update t: average = d average + (1 - d) weights, with d = min(decay, (1 + t) / (10 + t)).

    The first weights are random, so the average forgets them quickly: d is 0.18 at the first update, 0.5 at the 8th,
    0.99 at the 890th, and grows until it is `decay`. The average is stored in float32 at least, because bfloat16 would
    round small changes away. Parameters may be sharded (FSDP2); then each process holds its shard of the average.
    """

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be at least 0 and below 1, got {decay}")
        self.parameters, self.decay = dict(parameters), decay
        self.weights = {
            name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            for name, weight in parameters.items()
        }
        self.updates = 0

    def next_weight(self) -> float:
        """Count an update and return 1 - d, the share of the new weights in the average."""
        self.updates += 1
        return 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))

    def update(self, weight: float | Tensor) -> None:
        """Move the average towards the current weights by the share `weight`, which may be a tensor on the device."""
        averages = list(self.weights.values())
        with torch.no_grad():
            differences = [
                current.detach().to(average.dtype) - average
                for current, average in zip(self.parameters.values(), averages, strict=True)
            ]
            torch._foreach_mul_(differences, weight)
            torch._foreach_add_(averages, differences)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Load the average into the parameters inside the block, and restore them bit for bit afterwards."""
        raw = {name: weight.detach().clone() for name, weight in self.parameters.items()}
        try:
            self._fill(self.weights)
            yield
        finally:
            self._fill(raw)

    def load(self, weights: Mapping[str, Tensor], updates: int) -> None:
        """Continue with a saved average, given as full tensors, and its number of updates."""
        for name in sorted(self.weights.keys() | weights.keys()):
            expected, saved = (
                tuple(tensors[name].shape) if name in tensors else "none" for tensors in (self.weights, weights)
            )
            if expected != saved:
                raise ValueError(f"the average of {name!r} must have shape {expected}, and has {saved}")
        for name, average in self.weights.items():
            average.copy_(shard_like(weights[name], average))
        self.updates = updates

    def _fill(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(values[name])
