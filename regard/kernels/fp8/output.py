"""The output layer of a model, whose scores over the vocabulary are computed for some rows at a time, in 8 bits.

n rows   p width   V vocabulary
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.fp8.casts import E4M3, E5M2, cast_both
from regard.kernels.fp8.products import product

EXACT_SCORES = True


class Fp8Output:
    """Scores x w^T + b for x (n, p), w (V, p), in `dtype`; the products of the backward pass are of 8 bits.

    The gradient of a score is between -1 and 1, so its scale is known.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, amax: Tensor) -> None:
        self.dtype, self.x_amax = dtype, amax[0]
        self.weight = weight.to(dtype) if EXACT_SCORES else None
        self.bias = None if bias is None else bias.to(dtype)
        self.weight_cast = cast_both(weight, amax[1], E4M3)
        self.gradient_amax = torch.full_like(amax[2], 2.0**-4)  # scales by 2^15

    def scores(self, x: Tensor) -> Tensor:
        self.x_cast = cast_both(x, self.x_amax, E4M3)
        if self.weight is not None:
            return F.linear(x, self.weight, self.bias)
        inverses = self.x_cast.inverse, self.weight_cast.inverse
        return product(
            self.x_cast.straight, self.weight_cast.straight, (E4M3, E4M3), inverses, dtype=self.dtype, bias=self.bias
        )

    def gradients(
        self, gradient: Tensor, x: Tensor, for_x: bool, for_weight: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of the last x and of w."""
        g, formats, w, x_cast = (
            cast_both(gradient, self.gradient_amax, E5M2),
            (E5M2, E4M3),
            self.weight_cast,
            self.x_cast,
        )
        to_x = to_weight = None
        if for_x:
            to_x = product(g.straight, w.transposed, formats, (g.inverse, w.inverse), dtype=self.dtype)
        if for_weight:
            inverses = g.inverse, x_cast.inverse
            to_weight = product(g.transposed, x_cast.transposed, formats, inverses, dtype=torch.float32, exact=True)
        return to_x, to_weight
