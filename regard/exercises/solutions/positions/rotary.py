"""Solution of rotary."""

import torch
from torch import Tensor


def rotate(X: Tensor) -> Tensor:
    """Queries or keys X (n, d) at positions 0 … n - 1, d even; return them rotated (n, d)."""
    n, d = X.shape
    t = torch.arange(0, n)[:, None]
    theta = t / 10000 ** (torch.arange(0, d, 2) / d)  # (n, d/2)
    a, b = X[:, 0::2], X[:, 1::2]
    rotated = torch.empty_like(X)
    rotated[:, 0::2] = a * torch.cos(theta) - b * torch.sin(theta)
    rotated[:, 1::2] = a * torch.sin(theta) + b * torch.cos(theta)
    return rotated
