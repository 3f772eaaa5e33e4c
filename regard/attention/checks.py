"""What `attend` asks of its arguments, and the messages when they do not fit.

Each message names the argument, what was given and what fits.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.mask_rules import wrong_mask
from regard.attention.scores import SCORES, Score
from regard.errors import unknown_name


def check_tensors(q: Tensor, k: Tensor, v: Tensor, score: str | Score) -> None:
    """Raise a ValueError or TypeError that names the argument unless q, k, v and the score fit together."""
    if isinstance(score, str):
        if score not in SCORES:
            raise ValueError(unknown_name("score", score, SCORES))
        if score not in ("scaled", "dot"):
            raise ValueError(
                f"score {score!r} has parameters: build it as a module, for example "
                f"regard.{score.capitalize()}Score(…), and give that as score="
            )
    elif not callable(score):
        raise TypeError(f"score must be a name or a callable (q, k) -> (…, m, n), got {type(score).__name__}")

    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not x.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {x.dtype}")
        if x.dim() != q.dim() or not 2 <= x.dim() <= 4:
            raise ValueError(
                f"q, k and v must all be (B, H, length, width), (B, length, width) or (length, width); "
                f"{_shapes(q, k, v)}"
            )
        if x.dtype != q.dtype:
            raise TypeError(f"q, k and v must have one dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
        if x.device != q.device:
            raise ValueError(f"q, k and v must be on one device, got {q.device}, {k.device}, {v.device}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must be equal in number, got {k.shape[-2]} keys and {v.shape[-2]} values")
    if isinstance(score, str) and q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"queries and keys must have one width, got {q.shape[-1]} and {k.shape[-1]}; {_shapes(q, k, v)}"
        )
    if q.dim() > 2 and not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ValueError(f"q, k and v must have one batch size; {_shapes(q, k, v)}")
    if q.dim() == 4 and (k.shape[1] != v.shape[1] or k.shape[1] == 0 or q.shape[1] % k.shape[1]):
        raise ValueError(f"k and v must have the same heads, and these divide those of q; {_shapes(q, k, v)}")


def one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Under autocast, which leaves some tensors in float32 and makes others half, all three in autocast's dtype."""
    if not all(isinstance(x, Tensor) for x in (q, k, v)) or q.dtype == k.dtype == v.dtype:
        return q, k, v
    if not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def check_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The mask, if it is bool and fits the weights."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(wrong_mask(mask))
    _check_broadcast("mask", mask, q, k)
    return mask


def check_bias(bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """The bias, if it is floating point and fits the scores."""
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        given = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias is added to the scores and must be floating point, got {given}; bools go into mask=")
    _check_broadcast("bias", bias, q, k)
    return bias


def _check_broadcast(name: str, x: Tensor, q: Tensor, k: Tensor) -> None:
    """Raise ValueError unless x broadcasts to the weights of q (B, H, m, d) and k (B, H, n, d)."""
    have, want = x.shape, (*q.shape[:3], k.shape[2])
    same = len(have) == 4 and have == want  # of other ranks, B would be held against H, and export would fix that
    if not same and (len(have) > 4 or any(h not in (1, w) for h, w in zip(have[::-1], want[::-1], strict=False))):
        raise ValueError(f"{name} of shape {tuple(have)} does not broadcast to the weights (B, H, m, n) = {want}")
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device}, but q is on {q.device}")


def with_heads(x: Tensor) -> Tensor:
    """(length, width) or (B, length, width) -> (B, 1, length, width); other ranks stay."""
    if not isinstance(x, Tensor):
        return x  # the checks that follow say what is wrong with it
    return x[None, None] if x.dim() == 2 else x.unsqueeze(1) if x.dim() == 3 else x


def without_heads(x: Tensor, rank: int) -> Tensor:
    """Back from (B, H, length, width) to the rank that the caller's tensors had."""
    return x if rank == 4 else x[:, 0] if rank == 3 else x[0, 0]


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
