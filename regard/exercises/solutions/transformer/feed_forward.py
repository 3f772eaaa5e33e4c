"""Solution of feed-forward."""

import torch
from torch import Tensor


def feed_forward(X: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """X (…, d), W_1 (d, hidden), b_1 (hidden), W_2 (hidden, d), b_2 (d); return (…, d)."""
    hidden = torch.relu(X @ W_1 + b_1)
    return hidden @ W_2 + b_2
