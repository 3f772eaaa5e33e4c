"""Positions in two dimensions: the row and the column of a patch of an image.

Letters: B batch, T cells of the grid, row by row, D width of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.positions.interface import Position, check_positions, check_size, check_width
from regard.positions.sinusoids import Sinusoidal


class SinusoidalGrid(Position):
    """Sinusoids of two axes, added to the embeddings of the cells of a grid.

    Dosovitskiy et al. 2021, appendix D.4; B2, G5. The first half of a vector has the sinusoids of the row, the second
    half those of the column. `dim` is a multiple of 4: a sine and a cosine of each axis.
    """

    def __init__(self, *, columns: int, dim: int) -> None:
        super().__init__()
        check_size("columns", columns)
        check_size("dim", dim)
        if dim % 4:
            raise ValueError(f"dim must be a multiple of 4, not {dim}")
        self.columns, self.dim = columns, dim
        self.axis = Sinusoidal(dim=dim // 2)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the row and the column of each cell, whose number is its position, to x (B, T, D)."""
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        return x + self.rows(positions, x.dtype)

    def rows(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the vectors of these cells, (T, D) or (B, T, D)."""
        down, across = positions // self.columns, positions % self.columns
        return torch.cat([self.axis.rows(down, dtype), self.axis.rows(across, dtype)], dim=-1)

    def extra_repr(self) -> str:
        return f"columns={self.columns}, dim={self.dim}"
