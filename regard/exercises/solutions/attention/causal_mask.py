"""Solution of causal-mask."""

import torch
from torch import Tensor


def causal_mask(m: int, n: int) -> Tensor:
    """Return a mask (m, n): True where one of the last m of n tokens may attend to a key."""
    return torch.ones(m, n, dtype=torch.bool).tril(diagonal=n - m)  # query j is token n - m + j
