"""Solution of cross-attention."""

import math

import torch
from torch import Tensor


def cross_attention(Y: Tensor, X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    """Y (m, d) from the decoder, X (n, d) from the encoder, matrices (d, d); return the output (m, d)."""
    Q, K, V = Y @ W_q, X @ W_k, X @ W_v
    scores = Q @ K.T / math.sqrt(K.shape[-1])  # (m, n)
    return torch.softmax(scores, dim=-1) @ V
