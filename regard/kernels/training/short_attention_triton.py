"""Attention of short texts in training, as one Triton kernel forward and one backward, for NVIDIA GPUs.

Vaswani et al. 2017, eq. 1; D4, D9, D10. A program computes all scores of a head and sentence at once. Only q, k and v
are kept for the backward pass, which computes the weights and generates the dropout mask again. The kernels process
the last sentences first: the product before wrote them last, so they are still in the GPU's cache, and the product
after starts with the first ones. Tests compare the kernels with the reference in Triton's interpreter.

    B batch   H heads   m queries   n keys   d width of a head
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor
from torch.library import custom_op
from triton import language as tl

from regard.kernels.training.dropout_triton import kept_of_product, share
from regard.kernels.training.row_sums_triton import add_up

LOG2_E = tl.constexpr(1.4426950408889634)
MIN_TILE = 32  # queries, keys and width; with 16, mask and dropout, products of Triton 3.6 are wrong


@triton.jit
def _tile(start, row, stride, count, d, ROWS: tl.constexpr, D: tl.constexpr):
    """Load the rows of a head as (ROWS, D), padded with zeros."""
    at = tl.arange(0, D)
    inside = (row < count)[:, None] & (at < d)[None, :]
    return tl.load(start + row[:, None] * stride + at[None, :], mask=inside, other=0.0)


@triton.jit
def _put(start, row, stride, count, d, values, D: tl.constexpr):
    at = tl.arange(0, D)
    inside = (row < count)[:, None] & (at < d)[None, :]
    tl.store(start + row[:, None] * stride + at[None, :], values.to(start.dtype.element_ty), mask=inside)


@triton.jit
def _put_sum(start, d, values, D: tl.constexpr):
    at = tl.arange(0, D)
    tl.store(start + at, tl.sum(values, 1), mask=at < d)


@triton.jit
def _exponentials(q, k, i, j, keep, m, n, scale, CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Return exp(q k^T scale) at the allowed keys, (M, N), each row divided by its maximum; and 1 / its sum, (M,).

    Their product is softmax(q k^T scale). A row without keys is zero.
    """
    scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    seen = (j < n)[None, :] & (i < m)[:, None]
    if MASKED:
        seen = seen & (tl.load(keep + j, mask=j < n, other=0) != 0)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None] + (n - m))
    scores = tl.where(seen, scores, -float("inf"))
    top = tl.max(scores, 1)
    to_base_2 = scale * LOG2_E  # as the GPU computes it
    exponentials = tl.exp2(scores * to_base_2 - tl.where(top == -float("inf"), 0.0, top * to_base_2)[:, None])
    mass = tl.sum(exponentials, 1)
    return exponentials, 1.0 / tl.where(mass == 0.0, 1.0, mass)


@triton.jit
def _attend(
    q,
    k,
    v,
    keep,
    seed,
    out,
    q_batch,  # strides between sentences, heads and tokens
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    keep_batch,
    heads,
    m,
    n,
    d,
    scale,
    dropped,
    inverse_keep,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    DROPOUT: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
):
    """Process one head of one sentence."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    b, h = (program // heads).to(tl.int64), program % heads
    i, j = tl.arange(0, M), tl.arange(0, N)
    queries = _tile(q + b * q_batch + h * q_head, i, q_row, m, d, M, D)
    keys = _tile(k + b * k_batch + h * k_head, j, k_row, n, d, N, D)
    values = _tile(v + b * v_batch + h * v_head, j, v_row, n, d, N, D)
    weights, inverse = _exponentials(queries, keys, i, j, keep + b * keep_batch, m, n, scale, CAUSAL, MASKED)
    if DROPOUT:
        weights = tl.where(kept_of_product(tl.load(seed), program * M + i, dropped, M, N), weights, 0.0)
    mixed = tl.dot(weights.to(values.dtype), values, input_precision="ieee") * (inverse * inverse_keep)[:, None]
    _put(out + (b * m * heads + h) * d, i, heads * d, m, d, mixed, D)


@triton.jit
def _attend_back(
    grad_out,  # d loss / d out
    q,
    k,
    v,
    keep,
    seed,
    gradients,  # of q, k and v; see attend_short_back
    sums,  # of the gradients over the tokens of a sentence, (B, 3 H d)
    g_batch,
    g_head,
    g_row,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    keep_batch,
    heads,
    m,
    n,
    d,
    scale,
    dropped,
    inverse_keep,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    DROPOUT: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    FROM_ONE_PRODUCT: tl.constexpr,
    SUMS: tl.constexpr,
):
    """One head of one sentence: with A the weights, Z those that stay grown, and 0 for the others,

    dV = (A Z)^T dY,   T = A Z (dY V^T),   dS = T - A sum_j T,   dQ = dS K scale,   dK = dS^T Q scale.

    What a bias of the values gets, sum_j dV, is sum_i (sum_j A Z) dY, which takes fewer additions. One of the keys gets
    nothing: it adds the same to all scores of a query, so the rows of dS sum to 0.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    b, h = (program // heads).to(tl.int64), program % heads
    i, j = tl.arange(0, M), tl.arange(0, N)
    queries = _tile(q + b * q_batch + h * q_head, i, q_row, m, d, M, D)
    keys = _tile(k + b * k_batch + h * k_head, j, k_row, n, d, N, D)
    values = _tile(v + b * v_batch + h * v_head, j, v_row, n, d, N, D)
    grad_rows = _tile(grad_out + b * g_batch + h * g_head, i, g_row, m, d, M, D)
    weights, inverse = _exponentials(queries, keys, i, j, keep + b * keep_batch, m, n, scale, CAUSAL, MASKED)
    used = weights * (inverse * inverse_keep)[:, None]  # A Z
    if DROPOUT:
        used = tl.where(kept_of_product(tl.load(seed), program * M + i, dropped, M, N), used, 0.0)
    steps = used * tl.dot(grad_rows, tl.trans(values), input_precision="ieee")  # T
    steps = (steps - weights * (inverse * tl.sum(steps, 1))[:, None]) * scale  # dS
    steps = steps.to(keys.dtype)
    width = heads * d
    if FROM_ONE_PRODUCT:
        to_next_q, to_next_k = 3 * width, 3 * width
        dq = gradients + b * m * 3 * width + h * d
        dk = dq + width
    else:
        to_next_q, to_next_k = width, 2 * width
        dq = gradients + b * m * width + h * d
        dk = gradients + tl.num_programs(0).to(tl.int64) * m * d + b * n * 2 * width + h * d
    dv = dk + width
    bias_sums = sums + b * 3 * width + h * d
    step = tl.dot(tl.trans(grad_rows), used.to(grad_rows.dtype), input_precision="ieee")
    _put(dv, j, to_next_k, n, d, tl.trans(step), D)
    if SUMS:
        _put_sum(bias_sums + 2 * width, d, step, D)
    step = tl.dot(tl.trans(queries), steps, input_precision="ieee")
    _put(dk, j, to_next_k, n, d, tl.trans(step), D)
    if SUMS:
        _put_sum(bias_sums + width, d, tl.zeros((D, 1), tl.float32), D)
    step = tl.dot(tl.trans(keys), tl.trans(steps), input_precision="ieee")
    _put(dq, i, to_next_q, m, d, tl.trans(step), D)
    if SUMS:
        _put_sum(bias_sums, d, step, D)


@custom_op("regard::attend_short", mutates_args=())
def attend_short(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    keep: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
) -> Tensor:
    """Return (B, H, m, d) for q (B, H, m, d), k and v (B, H, n, d); `keep` (B or 1, n) is False for masked keys.

    Without a seed nothing is dropped. A `bias` (3 H d,) is in q, k and v already, as a constant: here it is given its
    gradient, the sum of theirs, which another kernel would have to read for it.
    """
    q, k, v = _in_rows(q), _in_rows(k), _in_rows(v)
    out = _like(q)
    marks, sizes, options = _settings(q, k, keep, seed, causal, scale, dropout)
    _attend[(q.shape[0] * q.shape[1],)](
        q, k, v, *marks, out, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *sizes, **options
    )
    return out


@custom_op("regard::attend_short_back", mutates_args=())
def attend_short_back(
    grad_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    seed: Tensor | None,
    causal: bool,
    scale: float,
    dropout: float,
    from_one_product: bool,
    summed: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of q, k and v: (B, m, 3 H, d) if `from_one_product`, else (B, m, H, d) and (B, n, 2 H, d).

    They have the layout of q, k and v, so the product before can use them directly. If `summed`, also their sums
    over all tokens in float32, (3 H d,).
    """
    read = tuple(_in_rows(x) for x in (grad_out, q, k, v))
    gradients = _empty_gradients(q, k)
    marks, sizes, options = _settings(q, k, keep, seed, causal, scale, dropout)
    strides = [step for x in read for step in x.stride()[:3]]
    sums = _sums(q, q.shape[0] if summed else 0)
    options["D"] = max(64, options["D"])  # Hopper's products have at least 64 rows
    _attend_back[(q.shape[0] * q.shape[1],)](
        *read, *marks, gradients, sums, *strides, *sizes, **options, FROM_ONE_PRODUCT=from_one_product, SUMS=summed
    )
    return gradients, add_up(sums) if summed else _sums(q, 0)


def _settings(
    q: Tensor, k: Tensor, keep: Tensor | None, seed: Tensor | None, causal: bool, scale: float, dropout: float
) -> tuple[tuple[Tensor, Tensor], tuple[float, ...], dict[str, int]]:
    """Return the arguments of both kernels besides q, k and v: mask and seed, sizes, and compile-time constants."""
    _, heads, m, d = q.shape
    n = k.shape[2]
    options: dict[str, int] = {"CAUSAL": causal, "MASKED": keep is not None, "DROPOUT": seed is not None}
    keep = q if keep is None else _in_rows(keep)  # any tensor; it is not read
    to_next = keep.stride(0) if keep.shape[0] > 1 else 0  # one mask for all sentences, or one for each
    M, N, D = (max(MIN_TILE, triton.next_power_of_2(size)) for size in (m, n, d))
    options |= {"M": M, "N": N, "D": D, "num_warps": 8 if M * N > 64 * 64 else 4}
    return (keep, q if seed is None else seed), (to_next, heads, m, n, d, scale, *share(dropout)), options


def _in_rows(x: Tensor) -> Tensor:
    """Return x with the numbers of a token contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(q: Tensor) -> Tensor:
    """Allocate (B, H, m, d) with the heads of a token adjacent in memory, as the next product reads them."""
    return q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)


def _empty_gradients(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty(q.numel() + 2 * k.numel())


def _sums(q: Tensor, *rows: int) -> Tensor:
    return q.new_empty(*rows, 3 * q.shape[1] * q.shape[3], dtype=torch.float32)


@attend_short.register_fake
def _(q: Tensor, *_: object) -> Tensor:
    return _like(q)


@attend_short_back.register_fake
def _(grad_out: Tensor, q: Tensor, k: Tensor, *settings: object) -> tuple[Tensor, Tensor]:
    return _empty_gradients(q, k), _sums(q) if settings[-1] else _sums(q, 0)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, bias, *marks, ctx.causal, ctx.scale, ctx.dropout = inputs
    ctx.bias = None if bias is None else bias.dtype
    ctx.save_for_backward(q, k, v, *marks)


def _gradients(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    q, k = ctx.saved_tensors[:2]
    B, H, m, d = q.shape
    from_one_product = q.stride(2) == 3 * H * d and m == k.shape[2]  # self-attention: views of one product
    summed = ctx.bias is not None
    gradients, sums = attend_short_back(
        grad_out, *ctx.saved_tensors, ctx.causal, ctx.scale, ctx.dropout, from_one_product, summed
    )
    # Compiled code omits these splits if q, k and v, or k and v, were split in the same way from one tensor.
    if from_one_product:
        parts = gradients.view(B, m, 3 * H, d).split_with_sizes((H, H, H), dim=2)
    else:
        dq, both = gradients.split_with_sizes((q.numel(), 2 * k.numel()))
        parts = [dq.view(B, m, H, d), *both.view(B, k.shape[2], 2 * H, d).split_with_sizes((H, H), dim=2)]
    dq, dk, dv = (part.transpose(1, 2) for part in parts)
    return dq, dk, dv, sums.to(ctx.bias) if summed else None, None, None, None, None, None


attend_short.register_autograd(_gradients, setup_context=_save_inputs)
