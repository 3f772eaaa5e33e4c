"""Normalization over the features of one token: LayerNorm and RMSNorm, as modules and as plain formulas.

Ba et al. 2016, Zhang & Sennrich 2019; E1.

No statistics are stored or shared between tokens, so the result does not depend on the batch, the length, or whether
tokens come one at a time. The modules call PyTorch's implementations; the functions write the formulas out.

Shapes: p features of one token; all other dimensions are batch dimensions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.checks import check_width

HALVES = (torch.float16, torch.bfloat16)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """LayerNorm written out: gamma * (x - mean) / sigma + b over the last dimension.

    Ba et al. 2016, equation 4; E1. sigma = sqrt(var + eps), and var has 1/p, not 1/(p-1).
    """
    centred = x - x.mean(dim=-1, keepdim=True)  # (…, p)
    sigma = torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + eps)  # (…, 1)
    y = weight * centred / sigma
    return y if bias is None else y + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """RMSNorm written out: gamma * x / sqrt(mean(x^2) + eps); LayerNorm without centering.

    Zhang & Sennrich 2019, equation 4; E1.
    """
    return weight * x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)


class LayerNorm(nn.Module):
    """Layer normalization with a trained gain (weight) and shift (bias).

    Ba et al. 2016; E1.
    """

    def __init__(self, dim: int, *, eps: float = 1e-5, bias: bool = True) -> None:
        super().__init__()
        _check_options(dim, eps)
        self.dim = dim
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if bias else None

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"LayerNorm"})

    def forward(self, x: Tensor) -> Tensor:
        check_width(x, self.dim)
        if x.dtype in HALVES and self.weight.dtype != x.dtype:
            # Under autocast. PyTorch sums in float32 in any case; autocast would also return float32.
            bias = None if self.bias is None else self.bias.to(x.dtype)
            with torch.autocast(x.device.type, enabled=False):
                return F.layer_norm(x, (self.dim,), self.weight.to(x.dtype), bias, self.eps)
        return F.layer_norm(x, (self.dim,), self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}, bias={self.bias is not None}"


class RMSNorm(nn.Module):
    """Root-mean-square normalization with a trained gain (weight).

    Zhang & Sennrich 2019; E1.
    """

    def __init__(self, dim: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        _check_options(dim, eps)
        self.dim = dim
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"RMSNorm"})

    def forward(self, x: Tensor) -> Tensor:
        check_width(x, self.dim)
        if x.dtype in HALVES and self.weight.dtype != x.dtype:  # as in LayerNorm
            with torch.autocast(x.device.type, enabled=False):
                return F.rms_norm(x, (self.dim,), self.weight.to(x.dtype), self.eps)
        return F.rms_norm(x, (self.dim,), self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.dim}, eps={self.eps}"


def _check_options(dim: int, eps: float) -> None:
    if dim < 1:
        raise ValueError(f"dim must be at least 1, got {dim}")
    if eps < 0:
        raise ValueError(f"eps must not be negative, got {eps}")
