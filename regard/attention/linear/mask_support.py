"""Which masks linear attention can obey: causal ones, and those that say which keys are there.

F3. Keys are summed up before any query comes, so a mask cannot tell one query from another, except by order.

    B batch   H heads   G heads of keys   m queries   n keys
"""

from __future__ import annotations

from torch import Tensor

from regard.attention.checks import check_mask, with_heads
from regard.attention.mask_rules import Both, Explicit, Lengths, Mask, Padding, split_causal, wrong_mask

FITS = (
    "random features sum the keys up before a query comes, so a mask may be causal (causal=True or "
    "regard.masks.causal()), say which keys are there (regard.masks.padding, or a bool tensor (B, 1, 1, n), the same "
    "for all queries and for the heads of a group), or both with &; any other needs exact attention, regard.attend"
)


def split_mask(mask: Mask | Tensor | None, q: Tensor, k: Tensor, rank: int) -> tuple[bool, Tensor | None]:
    """(is it causal, which keys are there: bool, broadcastable to (B, G, n)); a ValueError for any other mask.

    For q (B, H, m, d) and k (B, G, n, d), which had `rank` axes when they were given.
    """
    if mask is None:
        return False, None
    if not isinstance(mask, Mask):
        if not isinstance(mask, Tensor):
            raise TypeError(wrong_mask(mask))
        return False, _keys(check_mask(with_heads(mask) if rank == 3 else mask, q, k), q, k)
    causal, rest = split_causal(mask)
    keep: Tensor | None = None
    for part in rest.parts if isinstance(rest, Both) else (rest,):
        if part is None:
            continue
        if not isinstance(part, Lengths | Padding | Explicit):
            raise ValueError(f"a mask with {type(part).__name__.lower()} does not fit: {FITS}")
        matrix = check_mask(part.matrix(q.shape[2], k.shape[2], device=q.device), q, k)
        keep = _keys(matrix, q, k) if keep is None else keep & _keys(matrix, q, k)
    return causal, keep


def _keys(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The bool tensor, broadcastable to (B, H, m, n), without its axis of queries: broadcastable to (B, G, n)."""
    full = mask.reshape((1,) * (4 - mask.dim()) + mask.shape)
    if full.shape[2] != 1 or (full.shape[1] != 1 and q.shape[1] != k.shape[1]):
        raise ValueError(f"a mask of shape {tuple(mask.shape)} tells queries or heads apart: {FITS}")
    return full[:, :, 0].expand(-1, -1, k.shape[2])
