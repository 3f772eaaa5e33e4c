"""Learned positions: a trained vector for each position.

Radford et al. 2018, equation 2; B6.

Letters: B batch, T length, D width of the model.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import DataError, UsageError, unknown_name
from regard.positions.interface import ModelSizes, Position, check_positions, check_size, check_width


class Learned(Position):
    """A trained vector for each position up to a limit, as in the OpenAI models.

    Radford et al. 2018, equation 2; B6. Undefined past max_length. mode "add" adds it to the embedding (L4),
    "concat" appends `width` columns to it (L1), which makes embeddings wider: see `out_dim`.
    """

    limited = True

    def __init__(
        self, *, max_length: int, dim: int, mode: Literal["add", "concat"] = "add", width: int | None = None
    ) -> None:
        super().__init__()
        check_size("max_length", max_length)
        check_size("dim", dim)
        if mode not in ("add", "concat"):
            raise ValueError(unknown_name("mode", mode, ("add", "concat")))
        if (mode == "concat") != (width is not None):
            raise ValueError(f"width is the number of columns that mode='concat' appends; got {mode=}, {width=}")
        if width is not None:
            check_size("width", width)
        self.max_length, self.dim, self.mode = max_length, dim, mode
        self.table = nn.Parameter(torch.empty(max_length, dim if width is None else width))
        self.reset_parameters()

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        if sizes.max_length is None:
            raise UsageError("position 'learned' needs max_length, the length of the longest sequence")
        if sizes.width is None:
            return cls(max_length=sizes.max_length, dim=sizes.dim)
        return cls(max_length=sizes.max_length, dim=sizes.dim - sizes.width, mode="concat", width=sizes.width)

    @property
    def traits(self) -> frozenset[str]:
        return super().traits | ({"learned-concat"} if self.mode == "concat" else set())

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def out_dim(self, dim: int) -> int:
        return dim + self.table.shape[1] if self.mode == "concat" else dim

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        self._check_limit(positions)
        rows = F.embedding(positions, self.table).to(x.dtype)  # (T, D) or (B, T, D)
        if self.mode == "add":
            return x + rows
        return torch.cat((x, rows.expand(*x.shape[:-1], -1)), -1)  # (B, T, D + width)

    def _check_limit(self, positions: Tensor) -> None:
        # Reading the values would synchronize with a GPU or break a graph. There, a position past the limit in a short
        # sequence is left to the range check of the lookup.
        length = positions.shape[-1]
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and positions.numel():
            low, high = (int(end) for end in positions.aminmax())
            if low < 0:
                raise ValueError(f"positions must count from 0, but the lowest is {low}")
            length = high + 1
        if length > self.max_length:
            raise DataError(
                f"a sequence of length {length} has no learned positions past the trained length {self.max_length}: "
                "shorten it, train with a larger max_length, or use a scheme without a limit, such as "
                "'sinusoidal' or 'rotary'"
            )

    def extra_repr(self) -> str:
        width = f", width={self.table.shape[1]}" if self.mode == "concat" else ""
        return f"max_length={self.max_length}, dim={self.dim}, mode={self.mode!r}{width}"
