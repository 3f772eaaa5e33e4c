"""The one door to attention: `attend` checks its arguments and picks the fastest path that can do the work.

D1, D4, D9, D10, D13. Every path equals `attend_reference`; docs/architecture.md states the tolerances.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import math
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention.checks import check_bias, check_mask, check_tensors, with_heads, without_heads
from regard.attention.flex import attend_flex, flex_pays
from regard.attention.masks import Mask, as_mask, causal_matrix, split_causal
from regard.attention.reference import NEVER, attend_reference
from regard.attention.scores import Score
from regard.errors import unknown_name

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
HALVES = (torch.float16, torch.bfloat16)
BACKENDS = ("auto", "reference", "sdpa", *KERNELS, "flex")
Backend = Literal["auto", "reference", "sdpa", "flash", "efficient", "cudnn", "math", "flex"]


@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    causal: bool = ...,
    score: str | Score = ...,
    scale: float | None = ...,
    dropout: float = ...,
    backend: Backend = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...
@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    causal: bool = ...,
    score: str | Score = ...,
    scale: float | None = ...,
    dropout: float = ...,
    backend: Backend = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    score: str | Score = "scaled",
    scale: float | None = None,
    dropout: float = 0.0,
    backend: Backend = "auto",
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Mix the values v by how well their keys k fit the queries q: softmax(score(q, k)) v.

    Vaswani et al. 2017, eq. 1; D1, D4, D9. Shapes (B, H, m, d_k), (B, H, n, d_k), (B, H, n, d_v) -> (B, H, m, d_v);
    also without heads (B, m, d) or without batch and heads (m, d). Keys and values may have fewer heads than the
    queries (grouped or multi-query attention).

    mask     a regard mask or a bool tensor, True = may attend, broadcastable to the weights (B, H, m, n)
    bias     numbers added to the scaled scores, broadcastable likewise
    causal   no query sees a later key; the last query sees every key, so it is right with a cache
    score    "scaled" (q.k / sqrt(d_k)), "dot" (q.k), or any callable (q, k) -> (…, m, n), see regard.AdditiveScore
    scale    what the score is multiplied by; default 1/sqrt(d_k) for "scaled", else 1
    dropout  share of the weights set to zero; always applied, so give 0.0 outside training
    backend  "auto", "reference", "sdpa" or one of its kernels "flash", "efficient", "cudnn", "math"; "flex" in
             compiled CUDA code

    A query with nothing to attend to gets zeros. With `return_weights` the result is (output, weights), the
    weights before dropout, computed by the reference.
    """
    check_tensors(q, k, v, score)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is a share from 0 up to, but not including, 1; got {dropout}")
    rank = q.dim()
    if rank != 4:
        q, k, v = with_heads(q), with_heads(k), with_heads(v)
    own_score = None if isinstance(score, str) else score
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if score == "scaled" else 1.0

    if mask is not None:
        if isinstance(mask, Mask):
            found, mask = split_causal(mask)
            causal = causal or found
        else:
            mask = check_mask(with_heads(mask) if rank == 3 else mask, q, k)
    if bias is not None:
        bias = check_bias(with_heads(bias) if rank == 3 else bias, q, k)

    if backend == "auto":
        backend = "sdpa"
        if return_weights or own_score is not None:
            backend = "reference"
        elif isinstance(mask, Mask) and flex_pays(q, k, mask, dropout):
            backend = "flex"
    elif backend != "reference" and (return_weights or own_score is not None):
        what = "give weights" if return_weights else "compute a score of your own"
        raise ValueError(f"backend {backend!r} cannot {what}: use backend='auto' or 'reference'")

    weights = None
    if backend == "sdpa":
        y = _attend_sdpa(q, k, v, mask, causal, bias, scale, dropout)
    elif backend == "reference":
        allowed = _matrix(mask, causal, q, k)
        y, weights = attend_reference(q, k, v, mask=allowed, bias=bias, score=own_score, scale=scale, dropout=dropout)
    elif backend == "flex":
        y = attend_flex(
            q,
            k,
            v,
            mask=None if mask is None else as_mask(mask),
            causal=causal,
            bias=bias,
            scale=scale,
            dropout=dropout,
        )
    elif backend in KERNELS:
        y = _attend_kernel(backend, q, k, v, mask, causal, bias, scale, dropout)
    else:
        raise ValueError(unknown_name("backend", backend, BACKENDS))

    if rank != 4:
        y = without_heads(y, rank)
    if not return_weights:
        return y
    assert weights is not None  # only the reference is left when weights are asked for
    return y, without_heads(weights, rank)


def _attend_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """torch's fused kernels; a matrix is built only for what they do not know."""
    m, n = q.shape[2], k.shape[2]
    # torch aligns is_causal to the upper left, which is ours only when m = n; one query sees every key.
    allowed = None
    if causal and m == n and mask is None and bias is None:
        square = True
    else:
        square, allowed = False, _matrix(mask, causal and m != 1, q, k)
    if bias is not None:
        allowed = bias.to(q.dtype) if allowed is None else bias.to(q.dtype).masked_fill(~allowed, NEVER)
    while allowed is not None and allowed.dim() not in (2, 4):
        allowed = allowed[None]  # torch's fast kernels know masks of two and of four axes only
    y = F.scaled_dot_product_attention(
        q, k, v, allowed, dropout, square, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
    )
    if q.is_cuda and q.dtype in HALVES and allowed is not None and (mask is not None or bias is not None or m > n):
        # cuDNN's kernel, which torch prefers here on recent GPUs, fills a row without keys with arbitrary numbers.
        hidden = ~allowed if allowed.dtype == torch.bool else allowed == NEVER
        y = y.masked_fill(hidden.all(-1, keepdim=True), 0.0)
    return y


def _attend_kernel(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """One named SDPA kernel, or a ValueError that says that it cannot do this."""
    with sdpa_kernel(KERNELS[name]):
        try:
            return _attend_sdpa(q, k, v, mask, causal, bias, scale, dropout)
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            raise ValueError(
                f"SDPA's kernel {name!r} cannot do this on {q.device.type} with {q.dtype}, head width {q.shape[-1]}, "
                f"{'a mask or bias' if mask is not None or bias is not None else 'no mask'}: use backend='auto'"
            ) from error


def _matrix(mask: Mask | Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """All of the mask as one bool matrix, broadcastable to (B, H, m, n), or None when everything is allowed."""
    m, n = q.shape[2], k.shape[2]
    if isinstance(mask, Mask):
        mask = check_mask(mask.matrix(m, n, device=q.device), q, k)
    if not causal:
        return mask
    triangle = causal_matrix(m, n, device=q.device)
    return triangle if mask is None else mask & triangle
