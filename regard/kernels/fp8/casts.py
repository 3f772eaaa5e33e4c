"""Cast a matrix to 8-bit floating-point numbers, as it is and transposed.

Micikevicius et al. 2022, FP8 formats for deep learning. Values and weights are cast to e4m3, which has 3 bits of
mantissa; gradients, which differ more in magnitude, to e5m2, which has 2. One scale serves a whole matrix. It is a
power of two, so it rounds nothing. It follows the largest magnitude of the step before (delayed scaling), because the
current one is known only after another pass over the numbers. A number beyond the range of the format becomes the
largest number of the format.

Casts are stored as bytes (uint8), which every part of torch can pass on; products.py reads them as numbers.

    R rows   C columns
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.kernels.devices import runs_triton

MULTIPLE = 16  # cuBLAS wants the summed dimension in multiples of this


class Format(NamedTuple):
    """A floating-point format of 8 bits."""

    dtype: torch.dtype
    top: int  # the largest magnitude is scaled into [2^top, 2^(top + 1))
    limit: float  # the largest number


E4M3 = Format(torch.float8_e4m3fn, 7, 448.0)  # room for magnitudes that are 1.75 times as large as a step before
E5M2 = Format(torch.float8_e5m2, 11, 57344.0)  # 14 times; its range is large enough


class Cast(NamedTuple):
    """A matrix in 8 bits: `straight` (R, C) and `transposed` (C, R) times `inverse` are its numbers.

    `transposed` has columns of zeros at its end, so that their number is a multiple of 16.
    """

    straight: Tensor
    transposed: Tensor
    inverse: Tensor


def cast_both(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """Cast x (R, C) with the scale of `amax` (2,), in which the largest magnitude of x is stored for the next step.

    amax[0] is the largest magnitude of the last step, amax[1] collects the next one; see scales.py. Numbers of 32 bits
    are rounded to bfloat16 before.
    """
    x = x.contiguous()
    if not runs_triton(x.device):
        return cast_by_torch(x, amax, form)
    from regard.kernels.fp8.casts_triton import launch_cast

    cast = empty_cast(x.shape[0], x.shape[1], x.device)
    launch_cast(x, amax, cast, form)
    return cast


def empty_cast(rows: int, columns: int, device: torch.device) -> Cast:
    """Allocate the cast of a matrix."""
    padded = (rows + MULTIPLE - 1) // MULTIPLE * MULTIPLE
    straight = torch.empty(rows, columns, dtype=torch.uint8, device=device)
    transposed = torch.empty(columns, padded, dtype=torch.uint8, device=device)
    return Cast(straight, transposed, torch.empty((), device=device))


def cast_by_torch(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """The same with PyTorch's operations; tests compare the kernels with it."""
    amax = amax.data  # not amax itself: autograd would object to a change of what it saves
    x = x.to(torch.bfloat16).float()
    amax[1] = torch.maximum(amax[1], x.nan_to_num(0.0, 0.0, 0.0).abs().amax())
    exponent = (form.top + 1 - torch.frexp(amax[0]).exponent).clamp(-126, 126)
    scaled = (x * torch.ldexp(amax.new_ones(()), exponent)).clamp(-form.limit, form.limit)
    straight = scaled.to(form.dtype).view(torch.uint8)
    transposed = torch.nn.functional.pad(straight.T, (0, -len(x) % MULTIPLE)).contiguous()
    return Cast(straight, transposed, torch.ldexp(amax.new_ones(()), -exponent))
