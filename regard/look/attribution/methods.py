"""Three attribution methods: gradient times input, integrated gradients, and occlusion.

H4. F_i(x) is the log-probability of output i as a function of the token vectors x_1 … x_n, and b_j a baseline vector
that stands for "no token".

    gradient times input   A_ij = x_j · ∂F_i/∂x_j                                     Shrikumar et al. 2016
    integrated gradients   A_ij = (x_j - b_j) · ∫_0^1 ∂F_i/∂x_j at b + α (x - b) dα    Sundararajan et al. 2017
    occlusion              A_ij = F_i(x) - F_i(x with b_j in place of x_j)            Zeiler & Fergus 2014

    B variants   n input tokens   m outputs   d width of a token vector   S steps of the integral
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Score = Callable[[Tensor], Tensor]  # (B, n, d) -> (B, m)

BATCH = 16  # variants in one pass


def gradient_times_input(score: Score, x: Tensor, baseline: Tensor, steps: int = 0) -> Tensor:
    """Return A (m, n): the first-order estimate of what removing a token changes; no baseline, no steps."""
    _, gradients = _gradients(score, x[None])  # (m, 1, n, d)
    return (gradients[:, 0] * x).sum(-1)


def integrated_gradients(score: Score, x: Tensor, baseline: Tensor, steps: int) -> Tensor:
    """Return A (m, n); each row sums to F(x) - F(baseline) up to the error of the integral (completeness).

    The integral is a Gauss-Legendre sum of S points.
    """
    points, weights = np.polynomial.legendre.leggauss(steps)  # on -1 to 1
    alphas = torch.tensor((points + 1) / 2, dtype=x.dtype, device=x.device)  # (S,)
    shares = torch.tensor(weights / 2, dtype=x.dtype, device=x.device)
    mean = torch.zeros(())
    for some, share in zip(alphas.split(BATCH), shares.split(BATCH), strict=True):
        _, gradients = _gradients(score, baseline + some[:, None, None] * (x - baseline))  # (m, B, n, d)
        mean = mean + torch.einsum("b,mbnd->mnd", share, gradients)
    return (mean * (x - baseline)).sum(-1)


@torch.no_grad()
def occlusion(score: Score, x: Tensor, baseline: Tensor, steps: int = 0) -> Tensor:
    """Return A (m, n): how much each log-probability falls when one token is replaced by its baseline."""
    n = len(x)
    variants = x.expand(n, -1, -1).clone()  # (n, n, d): row j lacks token j
    every = torch.arange(n, device=x.device)
    variants[every, every] = baseline
    occluded = torch.cat([score(some) for some in variants.split(BATCH)])  # (n, m)
    return (score(x[None]) - occluded).T


def _gradients(score: Score, variants: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores (B, m) of variants (B, n, d), and the gradient of each score (m, B, n, d)."""
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):  # cuDNN has no gradients in eval mode
        variants = variants.detach().requires_grad_()
        scores = score(variants)
        # The variants do not interact, so one backward pass of their sum gives the gradient of each.
        gradients = [torch.autograd.grad(column.sum(), variants, retain_graph=True)[0] for column in scores.unbind(1)]
    return scores.detach(), torch.stack(gradients)


METHODS: dict[str, Callable[[Score, Tensor, Tensor, int], Tensor]] = {
    "integrated_gradients": integrated_gradients,
    "gradient_times_input": gradient_times_input,
    "occlusion": occlusion,
}
