"""Solution of relative-index."""

import torch
from torch import Tensor


def relative_bias(table: Tensor, n: int) -> Tensor:
    """Table (2 r + 1) of biases for distances -r … r; return the bias of each query and key (n, n)."""
    r = len(table) // 2
    places = torch.arange(n)
    distance = places[None, :] - places[:, None]  # key minus query
    return table[distance.clamp(-r, r) + r]
