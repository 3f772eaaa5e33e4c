"""The variance of a single estimate of exp(x.y), for each feature map as a formula.

Choromanski et al. 2021, lemma 2; Likhosherstov et al. 2022, theorem 3; F2. All are relative, Var[phi(x).phi(y)] /
exp(x.y)², with M independent rows of W; orthogonal rows have less. Trig and hyperbolic mirror each other: sines are
precise where x is close to y, exponentials where x is close to -y.

    trig        2 sinh²(|x-y|²/2) / M
    hyperbolic  2 sinh²(|x+y|²/2) / M
    positive    (e^{|x+y|²} - 1) / M
    optimal     ((1-4A)^d (1-8A)^{-d/2} e^{|x+y|²/(1-8A)} - 1) / M
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.attention.linear.feature_maps import FeatureMap, Hyperbolic, OptimalPositive, Positive, Trig

ESTIMATING = ("hyperbolic", "positive", "optimal", "trig")  # the maps with a formula
MAX_EXPONENT = 600.0  # larger exponents are clamped: e^710 overflows float64


def relative_variance(map: FeatureMap, x: Tensor, y: Tensor, *, rows: int) -> Tensor:
    """Return Var[phi(x).phi(y)] / exp(x.y)² for each pair of x (…, m, d) and y (…, n, d): (…, m, n) in float64.

    x and y are queries and keys after RandomFeatures.prepare, `rows` is M. Maps without a formula raise a ValueError.
    """
    x, y = x.double(), y.double()
    far = squared_sum(x, y).clamp(max=MAX_EXPONENT)
    if isinstance(map, Trig):
        near = squared_sum(x, -y).clamp(max=MAX_EXPONENT)
        return 2 * torch.sinh(near / 2).square() / rows
    if isinstance(map, Hyperbolic):
        return 2 * torch.sinh(far / 2).square() / rows
    if isinstance(map, Positive):
        return torch.expm1(far) / rows
    if isinstance(map, OptimalPositive):
        d = x.shape[-1]
        a = map.best_a(d)
        factor = d * math.log(1 - 4 * a) - d / 2 * math.log(1 - 8 * a)
        return torch.expm1((factor + far / (1 - 8 * a)).clamp(max=MAX_EXPONENT)) / rows
    raise ValueError(f"{type(map).__name__} does not estimate exp(x.y): {', '.join(ESTIMATING)} do")


def squared_sum(x: Tensor, y: Tensor) -> Tensor:
    """Return |x+y|² for each pair of x (…, m, d) and y (…, n, d): (…, m, n)."""
    squares = x.square().sum(-1)[..., :, None] + y.square().sum(-1)[..., None, :]
    return (squares + 2 * x @ y.mT).clamp(min=0.0)  # negative by rounding only
