"""Checks of the arguments of `attend` and of the attention layers.

Each message names the argument, its value and what is valid.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.attention.masks.algebra import wrong_mask
from regard.attention.scores import SCORES, Score
from regard.errors import unknown_name
from regard.positions import Position


def check_tensors(q: Tensor, k: Tensor, v: Tensor, score: str | Score) -> None:
    """Raise a ValueError or TypeError that names the argument unless q, k, v and the score fit together."""
    if isinstance(score, str):
        if score not in SCORES:
            raise ValueError(SCORES.why_unknown(score))
        if score not in ("scaled", "dot"):
            example = f", for example regard.{score.capitalize()}Score(…)," if score in SCORES.built_in else ""
            raise ValueError(f"score {score!r} has parameters: build it as a module{example} and give that as score=")
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
        raise ValueError(f"k and v must have the same number of heads, a divisor of that of q; {_shapes(q, k, v)}")


def check_name(what: str, name: str, names: Sequence[str]) -> None:
    """Raise ValueError unless `name` is one of `names`."""
    if name not in names:
        raise ValueError(unknown_name(what, name, names))


def check_dropout(dropout: float) -> None:
    """Raise ValueError unless `dropout` is a probability below 1."""
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout must be at least 0 and less than 1, got {dropout}")


def check_options(
    dim: int, heads: int, kv_heads: int, d_k: int | None, d_v: int | None,
    *, slices: bool, dropout: float, window: int | None,
) -> None:  # fmt: skip
    """Raise ValueError unless the options of a multi-head layer fit together.

    `dim` must split into heads, or the widths of heads must be given; groups of heads must be equal; `dropout` must be
    a probability below 1; a window must contain at least the token itself.
    """
    check_dropout(dropout)
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, the token itself; got {window}")
    for name, size in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads), ("d_k", d_k), ("d_v", d_v)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if dim % heads and (d_k is None or d_v is None or slices):
        raise ValueError(f"dim={dim} does not split into heads={heads} equal parts; give d_k and d_v, or other heads")
    if heads % kv_heads:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}: each group of heads shares one")


def check_roles(self_attention: bool, position: object, window: int | None) -> None:
    """Raise ValueError if cross-attention has an option that is for self-attention only."""
    if not self_attention and (position is not None or window is not None):
        what = "positions inside attention are" if window is None else "a window is"
        raise ValueError(f"{what} for self-attention; cross-attention takes position=None and window=None")


def check_score_alone(score: Score | None, position: Position | None) -> None:
    """Raise ValueError if a position scheme adds to scores that the layer does not compute."""
    if score is not None and position is not None and position.adds_to_scores():
        raise ValueError(
            f"position {type(position).__name__} adds to the scaled dot product, which score= replaces: "
            "use a scheme that rotates or that acts on the embeddings"
        )


def check_input(name: str, x: Tensor, width: int) -> None:
    """Raise ValueError unless x is (B, length, width)."""
    if x.dim() != 3 or x.shape[2] != width:
        raise ValueError(f"{name} must be (B, length, {width}), got {tuple(x.shape)}")


def one_dtype(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast q, k and v to autocast's dtype where it is on and has left some of them in float32."""
    if not all(isinstance(x, Tensor) for x in (q, k, v)) or q.dtype == k.dtype == v.dtype:
        return q, k, v
    if not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    return q.to(dtype), k.to(dtype), v.to(dtype)


def check_mask(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the mask if it is bool and broadcasts to the weights; raise TypeError or ValueError otherwise."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(wrong_mask(mask))
    _check_broadcast("mask", mask, q, k)
    return mask


def check_bias(bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the bias if it is floating point and broadcasts to the scores; raise TypeError or ValueError otherwise."""
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        kind = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias is added to the scores and must be floating point, got {kind}; bools go into mask=")
    _check_broadcast("bias", bias, q, k)
    return bias


def check_scores(scores: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return the result of a score of the user's if it is (B, H, m, n); raise TypeError or ValueError otherwise."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"score must return a floating point tensor, got {kind}")
    expected = (*q.shape[:-1], k.shape[-2])
    if scores.shape != expected:
        raise ValueError(
            f"score must return one number for each query and key, (B, H, m, n) = {tuple(expected)}; "
            f"for q {tuple(q.shape)} and k {tuple(k.shape)} it returned {tuple(scores.shape)}"
        )
    return scores


def _check_broadcast(name: str, x: Tensor, q: Tensor, k: Tensor) -> None:
    """Raise ValueError unless x broadcasts to the weights of q (B, H, m, d) and k (B, H, n, d)."""
    have, want = x.shape, (*q.shape[:3], k.shape[2])
    same = len(have) == 4 and have == want  # other ranks would compare B with H, and export would then fix B
    if not same and (len(have) > 4 or any(h not in (1, w) for h, w in zip(have[::-1], want[::-1], strict=False))):
        raise ValueError(f"{name} of shape {tuple(have)} does not broadcast to the weights (B, H, m, n) = {want}")
    if x.device != q.device:
        raise ValueError(f"{name} is on {x.device}, but q is on {q.device}")


def with_heads(x: Tensor) -> Tensor:
    """(length, width) or (B, length, width) -> (B, 1, length, width); other ranks stay."""
    if not isinstance(x, Tensor):
        return x  # the checks that follow report it
    return x[None, None] if x.dim() == 2 else x.unsqueeze(1) if x.dim() == 3 else x


def without_heads(x: Tensor, rank: int) -> Tensor:
    """Undo `with_heads`: return x in the rank of the caller's tensors."""
    return x if rank == 4 else x[:, 0] if rank == 3 else x[0, 0]


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
