"""Solution of bidirectional."""

from collections.abc import Callable

import torch
from torch import Tensor


def bidirectional(X: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    """Inputs X (n, d); two networks that read a sequence (n, d) and return states (n, h); return both (n, 2 h)."""
    left = forward(X)  # row t knows words 0 … t
    right = backward(X.flip(0)).flip(0)  # row t knows words t … n - 1
    return torch.cat([left, right], dim=-1)
