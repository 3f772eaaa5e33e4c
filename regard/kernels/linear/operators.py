"""The kernels of random-feature attention as PyTorch operators, with gradients; for NVIDIA GPUs.

F3. Nothing of the size of the features is ever written: the forward pass saves only y and two numbers per query.

    B batch   H heads   G heads of keys   m queries   n keys   d, e widths   M rows of W   F features
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from regard.kernels.linear.launch_triton import (
    LN2,
    Side,
    add_up,
    count,
    find_deltas,
    in_rows,
    like,
    settings,
    states_for,
    walk,
    walk_back,
)


def attend_directly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor,
    a: Tensor,
    c: Tensor | None,
    log_g: Tensor | None,
    S: Tensor | None,
    z: Tensor | None,
    log_scale: Tensor | None,
    causal: bool,
    normalize: bool,
    scaled: bool,
    log_scales: bool,
    map: str,
    numbers: Sequence[float],
    per: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, m, d), k (B, G, n, d), v (B, G, n, e) -> y (B, H, m, e); top and den (B, H, m) for the backward pass.

    The other arguments are those of Settings, the numbers in its order; `per` 0: chosen for the GPU. Without log_scales
    top is empty.
    """
    q, k, v = in_rows(q), in_rows(k), in_rows(v)
    has = settings(q, W, a, c, log_g, S, z, log_scale, causal, normalize, scaled, log_scales, map, numbers, per)
    states = states_for(Side(k, v), has, None, 1)  # first: the GPU works while the rest is prepared
    y = like(q, v.shape[-1])
    top, den = _for_later(q, log_scales)
    walk(q, Side(k, v), has, states, None, y, top, den, q.shape[1] // k.shape[1])
    return y, top, den


attend_walk = custom_op("regard::attend_features", mutates_args=())(attend_directly)


def needs_operator(*tensors: Tensor | None) -> bool:
    """Whether a call must go through PyTorch's operator: for gradients, torch.compile, or a mode that watches calls.

    The operator takes as long as a short text does on the GPU.
    """
    if torch.compiler.is_compiling() or _number_of_modes():
        return True
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


# Private: how many modes such as FakeTensorMode watch the calls of operators. Without it, assume that one does.
_number_of_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)


@custom_op("regard::attend_features_back", mutates_args=())
def attend_walk_back(
    dy: Tensor,
    y: Tensor,
    top: Tensor,
    den: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor,
    a: Tensor,
    c: Tensor | None,
    log_g: Tensor | None,
    S: Tensor | None,
    z: Tensor | None,
    log_scale: Tensor | None,
    causal: bool,
    normalize: bool,
    scaled: bool,
    log_scales: bool,
    map: str,
    numbers: Sequence[float],
    per: int,
    learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v, a, c and log_g."""
    dy, y, q, k, v = (in_rows(x) for x in (dy, y, q, k, v))
    has = settings(q, W, a, c, log_g, S, z, log_scale, causal, normalize, scaled, log_scales, map, numbers, per)
    B, H, G = q.shape[0], q.shape[1], k.shape[1]
    shared = H // G
    dy, asked, fixed = find_deltas(y, dy, top, den, has)
    queries, keys = Side(q, dy), Side(k, v)
    dq, _, da = walk_back(
        queries, keys, has, states_for(keys, has, None, 1), asked, shared, reverse=False, learned=learned
    )
    later = states_for(queries, has, asked, shared)
    dk, dc, da_keys = walk_back(keys, queries, has, later, asked, shared, reverse=True, learned=learned)
    dv = v.new_empty(B, k.shape[2], H, v.shape[3], dtype=dk.dtype).transpose(1, 2)
    walk(k, queries, has, later, asked, dv, top, den, shared)
    if shared > 1:  # the gradients of keys and values are sums over the heads that share them
        dk, dv = (like(x, x.shape[3]).copy_(dx.unflatten(1, (G, -1)).sum(2)) for x, dx in ((k, dk), (v, dv)))
        dc = dc.unflatten(1, (G, -1)).sum(2)
    da = (da.sum((0, 2)) + da_keys.sum((0, 2))).unflatten(0, (G, -1)).sum(1)  # (G, d)
    if a.shape[0] == 1:
        da = da.sum(0, keepdim=True)
    dlog_g = dc[..., :0].clone() if log_g is None else _to_gates(dc, fixed.unflatten(1, (G, -1)).sum(2))
    return dq, dk, dv, da, dc, dlog_g


def _to_gates(dc: Tensor, fixed: Tensor) -> Tensor:
    """Return the gradient of log g_s: the sum of the gradients of all log weights c_j + b_i - b_j with j < s <= i.

    For a query i the gradients of its log weights sum to 0 over all j, as with a softmax, unless its denominator is the
    floor; for a key j they sum to dc_j over all i. So the result is the sum over all queries i >= s minus that over all
    keys j >= s.
    """
    return (fixed - dc).flip(-1).cumsum(-1).flip(-1)


@custom_op("regard::sum_features", mutates_args=())
def sum_up(
    k: Tensor,
    v: Tensor,
    W: Tensor,
    a: Tensor,
    c: Tensor | None,
    log_g: Tensor | None,
    S: Tensor | None,
    z: Tensor | None,
    log_scale: Tensor | None,
    normalize: bool,
    scaled: bool,
    log_scales: bool,
    map: str,
    numbers: Sequence[float],
    per: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the state after keys (B, G, n, d) and values (B, G, n, e): S, z and log_scale, without gradients."""
    k, v = in_rows(k), in_rows(v)
    has = settings(k, W, a, c, log_g, S, z, log_scale, True, normalize, scaled, log_scales, map, numbers, per)
    totals, after = add_up(Side(k, v), has, None, 1)
    (B, G, _, d), e = k.shape, v.shape[-1]
    F = has.features(d)
    last = totals[:, -1].unflatten(0, (B, G))
    return (
        last[..., : F * e].unflatten(-1, (F, e)).clone(),
        last[..., F * e :].clone(),
        after[:, -1].unflatten(0, (B, G)) * LN2,
    )


def _for_later(q: Tensor, log_scales: bool) -> tuple[Tensor, Tensor]:
    """Allocate top and den."""
    B, H, m, _ = q.shape
    return q.new_empty(B, H, m if log_scales else 0, dtype=torch.float32), q.new_empty(B, H, m, dtype=torch.float32)


@attend_walk.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, W: Tensor, a: Tensor, c: Tensor | None, log_g: Tensor | None, S: Tensor | None,
    z: Tensor | None, log_scale: Tensor | None, causal: bool, normalize: bool, scaled: bool, log_scales: bool,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return like(q, v.shape[-1]), *_for_later(q, log_scales)


@attend_walk_back.register_fake
def _(
    dy: Tensor, y: Tensor, top: Tensor, den: Tensor, q: Tensor, k: Tensor, v: Tensor, W: Tensor, a: Tensor,
    c: Tensor | None, log_g: Tensor | None, *_: object,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    small = [k.new_empty(*k.shape[:2], 0 if x is None else k.shape[2], dtype=torch.float32) for x in (c, log_g)]
    dk, dv = like(k, k.shape[3]), like(k, v.shape[3])
    return like(q, q.shape[3]), dk, dv, a.new_empty(a.shape, dtype=torch.float32), small[0], small[1]


@sum_up.register_fake
def _(
    k: Tensor, v: Tensor, W: Tensor, a: Tensor, c: Tensor | None, log_g: Tensor | None, S: Tensor | None,
    z: Tensor | None, log_scale: Tensor | None, normalize: bool, scaled: bool, log_scales: bool, map: str, *_: object,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    F = count(map, W, k.shape[3])
    S, z, log_scale = (k.new_empty(*k.shape[:2], *shape, dtype=torch.float32) for shape in ((F, v.shape[3]), (F,), ()))
    return S, z, log_scale


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output, *inputs[:10])
    ctx.settings = inputs[10:]
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 17
    needed = ctx.needs_input_grad
    dq, dk, dv, da, dc, dlog_g = attend_walk_back(dy, *ctx.saved_tensors, *ctx.settings, needed[4])
    gradients = (dq, dk, dv, None, da, dc, dlog_g)
    return *(x if need else None for x, need in zip(gradients, needed, strict=False)), *(None,) * 10


attend_walk.register_autograd(_gradients, setup_context=_save_for_backward)
