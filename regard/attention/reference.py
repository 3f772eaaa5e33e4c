"""Attention as the lectures write it: Y = softmax(scores) V, in plain tensor code.

Vaswani et al. 2017, eq. 1; D1, D9, D10. Slow and readable; tests compare every fast backend with it.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.attention.checks import check_scores
from regard.attention.scores import Score

NEVER = float("-inf")


def attend_reference(
    q: Tensor,  # (B, H, m, d_k)
    k: Tensor,  # (B, H or fewer, n, d_k)
    v: Tensor,  # (B, H or fewer, n, d_v)
    *,
    mask: Tensor | None,
    bias: Tensor | None,
    score: Score | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """(output (B, H, m, d_v), weights (B, H, m, n) before dropout); `score` None means the dot product."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))  # a group shares one head

    if score is None:
        s = (_at_least_float(q) * scale) @ _at_least_float(k).transpose(-2, -1)  # (B, H, m, n)
    else:
        s = _at_least_float(check_scores(score(q, k), q, k)) * scale  # in the dtype of its own parameters
    if bias is not None:
        s = s + bias.to(s.dtype)
    if mask is not None:
        s = s.masked_fill(~mask, NEVER)

    # softmax(-inf, …, -inf) is 0/0. A row with all keys masked gives zeros, and so do its gradients.
    empty = (s == NEVER).all(-1, keepdim=True)
    weights = torch.softmax(s.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)
    y = F.dropout(weights, dropout) @ _at_least_float(v)
    return y.to(v.dtype), weights.to(v.dtype)


def _at_least_float(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
