"""PyTorch's `scaled_dot_product_attention`, the default backend of `attend`.

Dao et al. 2022 (flash), Rabe & Staats 2021 (efficient). These never store the whole matrix of scores.

    B batch   H heads   m queries   n keys   d_k key width   d_v value width
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention.checks import check_mask
from regard.attention.masks.algebra import Mask
from regard.attention.masks.rules import causal_matrix, split_causal
from regard.attention.reference import NEVER

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
HALVES = (torch.float16, torch.bfloat16)


def attend_everyday(q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, causal: bool) -> Tensor | None:
    """Attend with as little overhead as possible, for the most common calls; return None for any other call.

    Only shapes are checked here. Other mistakes make PyTorch raise, and then `attend` explains them.
    """
    try:
        shape, keys = q.shape, k.shape
        if (
            len(shape) != 4
            or len(keys) != 4
            or keys != v.shape
            or shape[0] != keys[0]
            or shape[1] != keys[1]
            or shape[3] != keys[3]
        ):
            return None
        m, n = shape[2], keys[2]
        if mask is None:
            if m == 1 or not causal:
                return F.scaled_dot_product_attention(q, k, v)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True) if m == n else None
        rule = None
        if isinstance(mask, Mask):
            if mask.sparse:
                return None
            includes_causal, rule = split_causal(mask)
            if rule is None:
                return attend_everyday(q, k, v, None, True)
            causal = causal or includes_causal
            mask = rule.matrix(m, n, device=q.device)
        if mask.dtype is not torch.bool or mask.dim() != 4 or (causal and m != 1):
            return None
        y = F.scaled_dot_product_attention(q, k, v, mask)
        if y.is_cuda and y.dtype in HALVES:  # as in attend_sdpa
            y = y * (mask.any(-1, keepdim=True) if rule is None else rule.rows_with_keys(mask))
        return y
    except (RuntimeError, TypeError, AttributeError):
        return None


def attend_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend for any call; a mask matrix is built only if PyTorch has no option for the mask."""
    m, n = q.shape[2], k.shape[2]
    # PyTorch aligns is_causal to the upper left, which equals our alignment only if m = n; one query sees every key.
    allowed = None
    if causal and m == n and mask is None and bias is None:
        square = True
    else:
        square, allowed = False, mask_matrix(mask, causal and m != 1, q, k)
    if bias is not None:
        allowed = bias.to(q.dtype) if allowed is None else bias.to(q.dtype).masked_fill(~allowed, NEVER)
    while allowed is not None and allowed.dim() not in (2, 4):
        allowed = allowed[None]  # PyTorch's fast kernels take masks of two or four axes only
    y = F.scaled_dot_product_attention(
        q, k, v, allowed, dropout, square, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
    )
    if y.is_cuda and y.dtype in HALVES and allowed is not None and (mask is not None or bias is not None or m > n):
        # cuDNN, which PyTorch prefers on recent GPUs, returns the mean of the values for a row without keys.
        seen = allowed if allowed.dtype == torch.bool else allowed != NEVER
        y = y * seen.any(-1, keepdim=True)
    return y


def attend_kernel(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask | Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attend with the named kernel; raise ValueError if it does not support the call."""
    with sdpa_kernel(KERNELS[name]):
        try:
            return attend_sdpa(q, k, v, mask=mask, causal=causal, bias=bias, scale=scale, dropout=dropout)
        except RuntimeError as error:
            if "No available kernel" not in str(error) and "No viable backend" not in str(error):
                raise
            raise ValueError(
                f"SDPA's kernel {name!r} cannot do this on {q.device.type} with {q.dtype}, head width {q.shape[-1]}, "
                f"{'a mask or bias' if mask is not None or bias is not None else 'no mask'}: use backend='auto'"
            ) from error


def mask_matrix(mask: Mask | Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """Return the mask as one bool matrix, broadcastable to (B, H, m, n), or None if everything is allowed."""
    m, n = q.shape[2], k.shape[2]
    if isinstance(mask, Mask):
        mask = check_mask(mask.matrix(m, n, device=q.device), q, k)
    if not causal:
        return mask
    triangle = causal_matrix(m, n, device=q.device)
    return triangle if mask is None else mask & triangle
