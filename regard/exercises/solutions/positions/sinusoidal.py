"""Solution of sinusoidal."""

import torch
from torch import Tensor


def positions(length: int, d: int) -> Tensor:
    """Return the encodings of positions 0 … length - 1 as rows (length, d), for even d."""
    pos = torch.arange(0, length)[:, None]  # (length, 1)
    even = torch.arange(0, d, 2)  # 2i
    angles = pos / 10000 ** (even / d)  # (length, d/2)
    table = torch.empty(length, d)
    table[:, 0::2] = torch.sin(angles)
    table[:, 1::2] = torch.cos(angles)
    return table
