"""Solution of multi-head."""

import math

import torch
from torch import Tensor


def multi_head(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, heads: int) -> Tensor:
    """X (n, d) and matrices (d, d); return self-attention with several heads (n, d)."""
    n, d = X.shape
    d_k = d // heads
    Q, K, V = ((X @ W).reshape(n, heads, d_k).transpose(0, 1) for W in (W_q, W_k, W_v))  # (heads, n, d_k)
    weights = torch.softmax(Q @ K.transpose(1, 2) / math.sqrt(d_k), dim=-1)  # (heads, n, n)
    merged = (weights @ V).transpose(0, 1).reshape(n, d)
    return merged @ W_o
