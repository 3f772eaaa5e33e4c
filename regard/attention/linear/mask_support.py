"""Which masks linear attention supports: causal ones, and those that say which keys exist.

F3. Keys are summed up before any query arrives, so a mask cannot distinguish between queries, except by their order.

    B batch   H heads   G key-value heads   m queries   n keys
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.checks import check_mask, with_heads
from regard.attention.masks.algebra import Both, Explicit, Mask, as_mask, wrong_mask
from regard.attention.masks.rules import Lengths, Padding, split_causal

SUPPORTED_MASKS = (
    "random features sum the keys up before a query arrives, so a mask may be causal (causal=True or "
    "regard.masks.causal()), say which keys exist (regard.masks.padding, or a bool tensor (B, 1, 1, n), the same "
    "for all queries and for the heads of a group), or both with &; any other needs exact attention, regard.attend"
)


def split_mask(mask: Mask | Tensor | None, q: Tensor, k: Tensor, rank: int) -> tuple[bool, Tensor | None]:
    """Split a mask into (is it causal, which keys exist: bool, broadcastable to (B, G, n)).

    For q (B, H, m, d) and k (B, G, n, d), which the caller passed with `rank` axes. Other masks raise a ValueError.
    """
    if mask is None:
        return False, None
    if not isinstance(mask, Mask):
        if not isinstance(mask, Tensor):
            raise TypeError(wrong_mask(mask))
        return False, _existing_keys(check_mask(with_heads(mask) if rank == 3 else mask, q, k), q, k)
    causal, rest = split_causal(mask)
    keep: Tensor | None = None
    for part in rest.parts if isinstance(rest, Both) else (rest,):
        if part is None:
            continue
        if not isinstance(part, Lengths | Padding | Explicit):
            raise ValueError(f"a mask with {type(part).__name__.lower()} is not supported: {SUPPORTED_MASKS}")
        matrix = check_mask(part.matrix(q.shape[2], k.shape[2], device=q.device), q, k)
        keys = _existing_keys(matrix, q, k)
        keep = keys if keep is None else keep & keys
    return causal, keep


def drop_keys(k: Tensor, mask: Mask | Tensor | None, probability: float, *, heads: int) -> Mask | Tensor:
    """Return the mask without the keys that dropout removes: other keys for each head, unless heads share theirs."""
    heads = heads if k.shape[1] == heads else 1
    keep = torch.rand(k.shape[0], heads, 1, k.shape[2], device=k.device) >= probability
    return keep if mask is None else as_mask(mask) & keep


def _existing_keys(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Drop the query axis of a bool tensor: broadcastable to (B, H, m, n) -> broadcastable to (B, G, n)."""
    full = mask.reshape((1,) * (4 - mask.dim()) + mask.shape)
    if full.shape[2] != 1 or (full.shape[1] != 1 and q.shape[1] != k.shape[1]):
        raise ValueError(f"a mask of shape {tuple(mask.shape)} distinguishes queries or heads: {SUPPORTED_MASKS}")
    return full[:, :, 0].expand(-1, -1, k.shape[2])
