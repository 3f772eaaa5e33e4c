"""Products of matrices that were cast to 8 bits."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.kernels.fp8.casts import Format


def product(
    a: Tensor,
    b: Tensor,
    formats: tuple[Format, Format],
    inverses: tuple[Tensor, Tensor],
    *,
    dtype: torch.dtype,
    bias: Tensor | None = None,
    exact: bool = False,
) -> Tensor:
    """Return a b^T, (R, N), for bytes a (R, K) and b (N, K) of these formats, times both inverse scales, plus bias.

    The GPU sums in more than 14 bits only if `exact`: after each 128 terms the partial sum is then added in float32.
    """
    x, y = (part.view(form.dtype) for part, form in zip((a, b), formats, strict=True))
    if not a.is_cuda:
        total = (x.float() @ y.float().T * (inverses[0] * inverses[1])).to(dtype)
        return total if bias is None else total + bias
    return torch._scaled_mm(
        x, y.T, scale_a=inverses[0], scale_b=inverses[1], bias=bias, out_dtype=dtype, use_fast_accum=not exact
    )
