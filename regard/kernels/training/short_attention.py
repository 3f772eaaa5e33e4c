"""When attention of short texts goes to the kernel of short_triton.py: in training with dropout, on NVIDIA GPUs.

D4, D9, D10. torch's kernels cut the scores into parts, which a sentence has no need of.

    B batch   H heads   m queries   n keys   d width of a head
"""

from __future__ import annotations

from torch import Tensor

from regard.attention.mask_rules import Lengths, Mask, Padding
from regard.attention.sdpa import HALVES
from regard.kernels.training.fused_dropout import draw_seed, draws

LONGEST = 128  # queries or keys
WIDEST = 128  # d


def short_fits(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, bias: Tensor | None, dropout: float
) -> bool:
    """Whether the kernel can do it: few tokens, no bias, and no mask but of keys, one row for all heads and queries."""
    if not draws("attention", q, dropout) or q.dtype not in HALVES or bias is not None:
        return False
    if isinstance(mask, Tensor):
        if mask.dim() != 4 or mask.shape[1] != 1 or mask.shape[2] != 1 or mask.shape[3] != k.shape[2]:
            return False
    elif not (mask is None or isinstance(mask, Padding | Lengths)):
        return False
    if k.shape != v.shape or k.shape[1] != q.shape[1] or q.shape[3] > WIDEST:
        return False
    return q.shape[2] <= LONGEST and k.shape[2] <= LONGEST


def attend_shortly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    projected: Tensor | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """As attend_sdpa, for what `short_fits`; a bias that was `projected` with q, k and v gets its gradient here."""
    from regard.kernels.training.short_attention_triton import attend_short

    if isinstance(mask, Mask):
        mask = mask.matrix(q.shape[2], k.shape[2], device=q.device)
    keep = None if mask is None else mask[:, 0, 0]  # (B, n)
    seed = draw_seed(q) if seed is None else seed
    return attend_short(q, k, v, projected, keep, seed, causal, scale, dropout)
