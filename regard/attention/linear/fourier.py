"""Fourier integral attention: a score that compares query and key in every dimension, in place of the dot product.

F4. Nguyen et al. 2022 (FourierFormer), definition 1. It is exact and quadratic, and does not use random features.

    … batch and heads   m queries   n keys   d width of both
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TINY = 1e-30  # sin x / x is 0 at multiples of pi, where its logarithm would be -inf and have no gradient


class FourierScore(nn.Module):
    """log prod_c phi(sin(R (q_c - k_c)) / (R (q_c - k_c))) with phi(z) = z^power, a score for `regard.attend`.

    Nguyen et al. 2022, definition 1; F4. The softmax of this logarithm divides the products by their sum, as the paper
    does. The product is small as soon as one dimension differs, whereas in a dot product another dimension can
    compensate. The learned radius R sets the scale of the distances.
    """

    def __init__(self, *, radius: float = 1.0, power: int = 4) -> None:
        super().__init__()
        if not radius > 0:
            raise ValueError(f"radius must be greater than 0, got {radius}")
        if power < 2 or power % 2:
            raise ValueError(
                f"power must be even, since the products are weights and sin x / x is negative: got {power}"
            )
        self.radius = nn.Parameter(torch.tensor(float(radius)))
        self.power = power

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"score fourier"})

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        distance = self.radius * (q.unsqueeze(-2) - k.unsqueeze(-3))  # (…, m, n, d)
        waves = torch.sinc(distance / math.pi)  # torch's sinc(x) is sin(pi x) / (pi x)
        return self.power * waves.abs().clamp(min=TINY).log().sum(-1)
