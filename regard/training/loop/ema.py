"""The exponential mean of the weights: a smoother model than the one that each step leaves behind.

Polyak & Juditsky 1992. The mean is what is validated and given away; the raw weights go on training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from regard.training.parallel.group import spread


class Ema:
    """A mean that forgets: after update t, mean = d mean + (1 - d) weights, with d = min(decay, (1 + t) / (10 + t)).

    The first weights are random, so the mean begins by forgetting fast: d is 0.18 at the first update, 0.5 at the
    8th, 0.99 at the 890th, and grows until it is `decay`. It is held in float32 at least: bfloat16 would round small
    steps away. Parameters may be spread over processes (FSDP2); then each process holds its part of the mean.
    """

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be a share from 0 up to, but not including, 1; got {decay}")
        self.parameters, self.decay = dict(parameters), decay
        self.weights = {
            name: weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)
            for name, weight in parameters.items()
        }
        self.updates = 0

    def next_weight(self) -> float:
        """Count a step, and say how much of the new weights the mean takes in: 1 - d."""
        self.updates += 1
        return 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))

    def update(self, weight: float | Tensor) -> None:
        """Take in the weights as they are now, after a step; `weight` may be a number on the device."""
        means = list(self.weights.values())
        with torch.no_grad():
            gaps = [
                now.detach().to(mean.dtype) - mean for now, mean in zip(self.parameters.values(), means, strict=True)
            ]
            torch._foreach_mul_(gaps, weight)
            torch._foreach_add_(means, gaps)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Within, the parameters hold the mean; afterwards they are what they were, bit for bit."""
        raw = {name: weight.detach().clone() for name, weight in self.parameters.items()}
        try:
            self._fill(self.weights)
            yield
        finally:
            self._fill(raw)

    def put(self, weights: Mapping[str, Tensor], updates: int) -> None:
        """Go on with a mean that was saved, its weights whole, and with the number of updates it had."""
        for name in sorted(self.weights.keys() | weights.keys()):
            wanted, given = (tuple(one[name].shape) if name in one else "none" for one in (self.weights, weights))
            if wanted != given:
                raise ValueError(f"the mean of {name!r} must have shape {wanted}, and has {given}")
        for name, mean in self.weights.items():
            mean.copy_(spread(weights[name], mean))
        self.updates = updates

    def _fill(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(values[name])
