"""Solution of lstm-step."""

import torch
from torch import Tensor


def lstm_step(x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Input x (d), state h (n), cell c (n), W (d, 4 n), U (n, 4 n), b (4 n); return the new h and c."""
    i, f, g, o = (x @ W + h @ U + b).chunk(4)
    new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    new_h = torch.sigmoid(o) * torch.tanh(new_c)
    return new_h, new_c
