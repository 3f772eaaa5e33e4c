"""Solution of scaled-dot-product."""

import math

import torch
from torch import Tensor


def attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Q (…, m, d_k), K (…, n, d_k), V (…, n, d_v); return the output (…, m, d_v)."""
    scores = Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-1])  # (…, m, n)
    weights = torch.softmax(scores, dim=-1)  # each query divides 1 among the keys
    return weights @ V
