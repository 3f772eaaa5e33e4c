"""The masks of the lectures, to be combined with & and |: causal, padding, window, document.

D10. True = may attend. A bool tensor joins a combination as it is. Printing a mask draws it.

    B batch   n keys
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.mask_rules import Causal, Document, Lengths, Mask, Padding, Window

__all__ = ["causal", "document", "padding", "window"]


def causal() -> Mask:
    """No query sees a later key: k <= j; D10. The last query sees every key."""
    return Causal()


def window(before: int, after: int | None = None) -> Mask:
    """A query sees at most `before` keys back and `after` keys ahead (`after` = `before` when not given)."""
    after = before if after is None else after
    if before < 0 or after < 0:
        raise ValueError(f"window sizes count keys and are not negative, got before={before}, after={after}")
    return Window(before, after)


def padding(keep: Tensor | Sequence[int]) -> Mask:
    """Hide padding: `keep` is the lengths (B,) of right-padded sentences, or bool (B, n) with True for real keys."""
    keep = torch.as_tensor(keep)
    if keep.dtype == torch.bool:
        if keep.dim() != 2:
            raise ValueError(f"padding takes a bool tensor (B, n), got shape {tuple(keep.shape)}")
        return Padding(keep)
    if keep.dim() != 1 or keep.is_floating_point():
        raise ValueError(
            f"padding takes integer lengths (B,) or a bool tensor (B, n), got {keep.dtype} of shape {tuple(keep.shape)}"
        )
    return Lengths(keep)


def document(ids: Tensor | Sequence[int]) -> Mask:
    """Tokens see only their own document; `ids` names each key's document, (n,) or (B, n)."""
    ids = torch.as_tensor(ids)
    if ids.is_floating_point() or ids.dim() not in (1, 2):
        raise ValueError(f"document takes integer ids (n,) or (B, n), got {ids.dtype} of shape {tuple(ids.shape)}")
    return Document(ids if ids.dim() == 2 else ids[None])
