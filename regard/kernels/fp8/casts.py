"""Cast a matrix to 8-bit floating-point numbers, as it is and transposed.

Micikevicius et al. 2022, FP8 formats for deep learning. Values and weights are cast to e4m3, which has 3 bits of
mantissa; gradients, which differ more in magnitude, to e5m2, which has 2. One scale serves a whole matrix. It is a
power of two, so it rounds nothing. It follows the largest magnitude of the step before (delayed scaling), because the
current one is known only after another pass over the numbers. A number beyond the range of the format becomes the
largest number of the format; it is at least 1.75 times as large as the largest number of the step before.

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


E4M3 = Format(torch.float8_e4m3fn, 7, 448.0)
E5M2 = Format(torch.float8_e5m2, 14, 57344.0)


class Cast(NamedTuple):
    """A matrix in 8 bits: `straight` (R, C) and `transposed` (C, R) times `inverse` are its numbers.

    `transposed` has columns of zeros at its end, so that their number is a multiple of 16.
    """

    straight: Tensor
    transposed: Tensor
    inverse: Tensor


def cast_both(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """Cast x (R, C) with the scale of `amax` (2,), in which the largest magnitude of x is stored for the next step.

    amax[0] is the largest magnitude of the last step. It is 0 before the first step, which scales by the current
    magnitude. amax[1] collects the next one; see scales.py.
    """
    x = x.contiguous()
    if not runs_triton(x.device):
        return _cast_by_torch(x, amax, form)
    from regard.kernels.fp8.casts_triton import launch_cast, launch_scan

    cast = empty_cast(x)
    launch_scan(x, amax)
    launch_cast(x, amax, *cast, top=form.top, limit=form.limit, e5m2=form is E5M2)
    return cast


def empty_cast(x: Tensor) -> Cast:
    rows, columns = x.shape
    padded = (rows + MULTIPLE - 1) // MULTIPLE * MULTIPLE
    straight, transposed = (x.new_empty(shape, dtype=torch.uint8) for shape in ((rows, columns), (columns, padded)))
    return Cast(straight, transposed, x.new_empty((), dtype=torch.float32))


def _cast_by_torch(x: Tensor, amax: Tensor, form: Format) -> Cast:
    """The same with PyTorch's operations; tests compare the kernel with it."""
    amax = amax.data  # not amax itself: autograd would object to a change of what it saves
    finite = x.isfinite()
    largest = torch.where(finite, x, 0).abs().amax().float()
    amax[1] = torch.maximum(amax[1], largest)
    used = torch.where(amax[0] > 0, amax[0], amax[1])
    exponent = (form.top + 1 - torch.frexp(used).exponent).clamp(-126, 126) * (used > 0)
    scaled = (x.float() * torch.ldexp(used.new_ones(()), exponent)).clamp(-form.limit, form.limit)
    straight = torch.where(finite, scaled, torch.nan).to(form.dtype).view(torch.uint8)
    transposed = torch.nn.functional.pad(straight.T, (0, -len(x) % MULTIPLE)).contiguous()
    return Cast(straight, transposed, torch.ldexp(used.new_ones(()), -exponent))
