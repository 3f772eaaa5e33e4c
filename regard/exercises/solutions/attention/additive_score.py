"""Solution of additive-score."""

import torch
from torch import Tensor


def additive_scores(Q: Tensor, K: Tensor, W_q: Tensor, W_k: Tensor, w: Tensor) -> Tensor:
    """Q (m, d), K (n, d), W_q and W_k (d, hidden), w (hidden); return the scores (m, n)."""
    queries = (Q @ W_q)[:, None, :]  # (m, 1, hidden)
    keys = (K @ W_k)[None, :, :]  # (1, n, hidden)
    return torch.tanh(queries + keys) @ w
