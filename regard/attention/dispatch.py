"""The entry point of attention: `attend` checks its arguments and picks the fastest backend that can do the work.

D1, D4, D9, D10, D13. Every backend agrees with `attend_reference`; docs/develop/architecture.md states the tolerances.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import math
from typing import Literal, overload

from torch import Tensor

from regard.attention.checks import (
    check_bias,
    check_dropout,
    check_mask,
    check_tensors,
    one_dtype,
    with_heads,
    without_heads,
)
from regard.attention.flex import attend_flex, flex_pays
from regard.attention.masks.algebra import Mask, as_mask
from regard.attention.masks.rules import split_causal
from regard.attention.reference import attend_reference
from regard.attention.scores import Score
from regard.attention.sdpa import KERNELS, attend_everyday, attend_kernel, attend_sdpa, mask_matrix
from regard.errors import unknown_name

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
    """Average the values v, weighted by how well their keys k match the queries q: softmax(score(q, k)) v.

    Vaswani et al. 2017, eq. 1; D1, D4, D9. Shapes (B, H, m, d_k), (B, H, n, d_k), (B, H, n, d_v) -> (B, H, m, d_v);
    also without heads (B, m, d) or without batch and heads (m, d). Keys and values may have fewer heads than the
    queries (grouped or multi-query attention).

        mask     a regard mask or a bool tensor, True = may attend, broadcastable to the weights (B, H, m, n)
        bias     numbers added to the scaled scores, broadcastable likewise
        causal   no query sees a later key; the last query sees every key, as a cache requires
        score    "scaled" (q.k / sqrt(d_k)), "dot" (q.k), or any callable (q, k) -> (…, m, n), see regard.AdditiveScore
        scale    factor of the score; default 1/sqrt(d_k) for "scaled", else 1
        dropout  probability of setting a weight to zero; always applied, so pass 0.0 outside training
        backend  "auto", "reference", "sdpa" or one of its kernels "flash", "efficient", "cudnn", "math"; "flex" in
                 compiled CUDA code

    A query whose keys are all masked gets zeros. With `return_weights` the result is (output, weights), the weights
    before dropout, computed by the reference.

    >>> import regard, torch
    >>> q, k = torch.zeros(1, 2), torch.randn(4, 2)  # the query has the same score with all four keys
    >>> regard.attend(q, k, torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    tensor([[2.5000]])
    """
    plain = score == "scaled" and scale is None and bias is None and not dropout
    if plain and backend == "auto" and not return_weights:
        y = attend_everyday(q, k, v, mask, causal)
        if y is not None:
            return y

    q, k, v = one_dtype(q, k, v)
    check_tensors(q, k, v, score)
    check_dropout(dropout)
    rank = q.dim()
    if rank != 4:
        q, k, v = with_heads(q), with_heads(k), with_heads(v)
    custom_score = None if isinstance(score, str) else score
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if score == "scaled" else 1.0

    if mask is not None:
        if isinstance(mask, Mask):
            includes_causal, mask = split_causal(mask)
            causal = causal or includes_causal
        else:
            mask = check_mask(with_heads(mask) if rank == 3 else mask, q, k)
    if bias is not None:
        bias = check_bias(with_heads(bias) if rank == 3 else bias, q, k)

    if backend == "auto":
        backend = "sdpa"
        if return_weights or custom_score is not None:
            backend = "reference"
        elif isinstance(mask, Mask) and flex_pays(q, k, mask, dropout):
            backend = "flex"
    elif backend != "reference" and (return_weights or custom_score is not None):
        what = "give weights" if return_weights else "compute a score of your own"
        raise ValueError(f"backend {backend!r} cannot {what}: use backend='auto' or 'reference'")

    weights = None
    if backend == "sdpa":
        y = attend_sdpa(q, k, v, mask=mask, causal=causal, bias=bias, scale=scale, dropout=dropout)
    elif backend == "reference":
        allowed = mask_matrix(mask, causal, q, k)
        y, weights = attend_reference(
            q, k, v, mask=allowed, bias=bias, score=custom_score, scale=scale, dropout=dropout
        )
    elif backend == "flex":
        rule = None if mask is None else as_mask(mask)
        y = attend_flex(q, k, v, mask=rule, causal=causal, bias=bias, scale=scale, dropout=dropout)
    elif backend in KERNELS:
        y = attend_kernel(backend, q, k, v, mask=mask, causal=causal, bias=bias, scale=scale, dropout=dropout)
    else:
        raise ValueError(unknown_name("backend", backend, BACKENDS))

    if rank != 4:
        y = without_heads(y, rank)
    if not return_weights:
        return y
    assert weights is not None  # return_weights selects the reference
    return y, without_heads(weights, rank)
