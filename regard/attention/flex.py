"""FlexAttention: block-sparse masks, whose empty blocks are skipped. Compiled CUDA code only.

Dong et al. 2024. The rule of a mask is compiled into the attention code.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.masks.algebra import Mask, Pair
from regard.attention.masks.rules import Causal


def flex_pays(q: Tensor, k: Tensor, mask: Mask, dropout: float) -> bool:
    """Whether FlexAttention is worthwhile: a long, block-sparse mask in compiled CUDA code.

    The limit is 1,024 keys, where a dense matrix takes a megabyte per sentence; the times have not been compared yet.
    """
    return mask.sparse and why_not_flex(q, dropout) is None and k.shape[2] >= 1024


def why_not_flex(q: Tensor, dropout: float) -> str | None:
    """Return the reason why FlexAttention cannot be used, or None if it can."""
    if not q.is_cuda:
        return f"backend 'flex' needs a CUDA tensor, got one on {q.device.type}: FlexAttention has no backward there"
    if not torch.compiler.is_compiling():
        return "backend 'flex' needs torch.compile: outside of it FlexAttention builds the whole matrix of scores"
    if dropout:
        return "backend 'flex' has no dropout on the weights: use another backend, or dropout=0.0"
    return None


def attend_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | None,
    causal: bool,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend with PyTorch's FlexAttention, which applies the rule of the mask; (B, H, m, d_v)."""
    if (reason := why_not_flex(q, dropout)) is not None:
        raise ValueError(reason)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    m, n = q.shape[2], k.shape[2]
    if causal:
        mask = Causal() if mask is None else mask & Causal()
    block_mask = None
    if mask is not None:
        mask.fit(m, n)
        rule = mask.to(q.device).rule  # compiled code cannot move tensors between devices

        def may_attend(batch: Tensor, head: Tensor, row: Tensor, j: Tensor) -> Tensor:
            return rule(Pair(batch, head, row, row + (n - m), j))

        block_mask = create_block_mask(may_attend, mask.batch, mask.heads, m, n, device=q.device)
    add_bias = None
    if bias is not None:
        full = bias.expand(q.shape[0], q.shape[1], m, n)

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, row: Tensor, j: Tensor) -> Tensor:
            return score + full[batch, head, row, j]

    return flex_attention(
        q, k, v, score_mod=add_bias, block_mask=block_mask, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
    )
