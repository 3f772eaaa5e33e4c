"""The largest magnitudes from which the scales of 8-bit products follow: one tensor for a whole model.

L matrices that are cast in a training step
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class ProductScales(NamedTuple):
    """The `amax` of casts.cast_both for the three matrices of a product y = x w^T: x, w, and the gradient of y."""

    x: Tensor
    weight: Tensor
    gradient: Tensor


class Fp8Scales:
    """The `amax` (L, 2) of all products of a model, and those of its output layer if that is a product of 8 bits."""

    def __init__(self, products: int, device: torch.device) -> None:
        self.amax = torch.zeros(3 * products, 2, device=device)
        self.products = [ProductScales(*rows) for rows in self.amax.split(3)]
        self.head: ProductScales | None = None

    def start_step(self) -> None:
        """Scale by the largest magnitudes of the step before; a matrix that it did not cast keeps its scale."""
        last, collected = self.amax.unbind(1)
        last.copy_(torch.where(collected > 0, collected, last))
        collected.zero_()


def training_scales(module: nn.Module) -> ProductScales | None:
    """Return the scales of the product in a module, or None if it is not trained in 8 bits."""
    return getattr(module, "fp8_scales", None) if module.training and torch.is_grad_enabled() else None
