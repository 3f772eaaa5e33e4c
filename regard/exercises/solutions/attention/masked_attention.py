"""Solution of masked-attention."""

import math

import torch
from torch import Tensor


def masked_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Q (m, d), K (n, d), V (n, d_v), mask (m, n), True where a query may attend; return the output (m, d_v)."""
    scores = Q @ K.T / math.sqrt(K.shape[-1])
    scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(~mask, 0.0)  # a row without keys is 0 / 0
    return weights @ V
