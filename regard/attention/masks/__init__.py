"""The masks of the lectures, combined with & and |: causal, padding, window, document.

D10. True = may attend. Bool tensors can be combined with masks. Printing a mask draws it.

    B batch   n keys

>>> import regard
>>> (regard.masks.causal() & regard.masks.window(1)).matrix(3, 3).int().tolist()
[[1, 0, 0], [1, 1, 0], [0, 1, 1]]
>>> regard.masks.padding([3, 2]).matrix(1, 3).int().tolist()  # (B, 1, 1, n); the second text has 2 tokens
[[[[1, 1, 1]]], [[[1, 1, 0]]]]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.masks.algebra import Mask
from regard.attention.masks.rules import Causal, Document, Lengths, Padding, Window

__all__ = ["causal", "document", "padding", "window"]


def causal() -> Mask:
    """Let no query attend to a later key: k <= j; D10. The last query attends to every key."""
    return Causal()


def window(before: int, after: int | None = None) -> Mask:
    """Let a query attend to at most `before` keys before it and `after` keys after it; default `after` = `before`."""
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
    """Let tokens attend only to their own document; `ids` (n,) or (B, n) has the document number of each key."""
    ids = torch.as_tensor(ids)
    if ids.is_floating_point() or ids.dim() not in (1, 2):
        raise ValueError(f"document takes integer ids (n,) or (B, n), got {ids.dtype} of shape {tuple(ids.shape)}")
    return Document(ids if ids.dim() == 2 else ids[None])
