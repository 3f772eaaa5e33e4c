"""The largest magnitudes from which the scales of 8-bit products follow: one tensor for a whole model.

L products y = x w^T that a training step computes
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Before the first step nothing is measured: magnitudes of x, w and the gradient of y. Numbers far from them lose
# precision in that step.
GUESSES = (16.0, 4.0, 2.0**-12)


class Fp8Scales:
    """The largest magnitudes of x, w and the gradient of y (3) of each product: of the last step and collected (2)."""

    def __init__(self, products: int, device: torch.device) -> None:
        self.amax = torch.zeros(products, 3, 2, device=device)
        self.amax[..., 0] = torch.tensor(GUESSES)
        self.output: Tensor | None = None  # those of the output layer, if its products are of 8 bits

    def start_step(self) -> None:
        """Scale by the largest magnitudes of the step before; a matrix that it did not cast keeps its scale."""
        last, collected = self.amax.unbind(-1)
        last.copy_(torch.where(collected > 0, collected, last))
        collected.zero_()


def training_scales(module: nn.Module) -> Tensor | None:
    """Return the `amax` (3, 2) of the product in a module, or None if it is not trained in 8 bits."""
    return getattr(module, "fp8_amax", None) if module.training and torch.is_grad_enabled() else None
