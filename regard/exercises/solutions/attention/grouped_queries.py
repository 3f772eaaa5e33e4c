"""Solution of grouped-queries."""

import math

import torch
from torch import Tensor


def grouped_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Q (H, m, d), K and V (G, n, d) with H a multiple of G; return the output (H, m, d)."""
    group = Q.shape[0] // K.shape[0]
    K = K.repeat_interleave(group, dim=0)  # (H, n, d)
    V = V.repeat_interleave(group, dim=0)
    weights = torch.softmax(Q @ K.transpose(1, 2) / math.sqrt(Q.shape[-1]), dim=-1)
    return weights @ V
