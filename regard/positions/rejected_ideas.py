"""The two ideas that the lectures reject before sinusoids: a fraction of the length, and the number of the word.

B5.

Letters: B batch, T length, D width of the model.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.positions.interface import ModelSizes, Position, check_positions, check_size, check_width


def fraction(length: int, dim: int) -> Tensor:
    """Return the first rejected idea, (length, dim): each column runs from 0 at the first word to 1 at the last; B5.

    Rejected because one step is a different distance in sentences of different lengths, so a difference does not
    give the number of words between two positions; and the length is unknown while a sentence is being generated.
    """
    check_size("length", length, least=0)
    check_size("dim", dim)
    return torch.linspace(0, 1, length)[:, None].expand(length, dim).contiguous()


def index(length: int, dim: int) -> Tensor:
    """Return the second rejected idea, (length, dim): each column is the word's number 1, 2, 3, …; B5.

    Rejected because the numbers grow without bound, dominate the embedding they are added to, and in long sentences
    reach values that never occurred in training.
    """
    check_size("length", length, least=0)
    check_size("dim", dim)
    return torch.arange(1.0, length + 1)[:, None].expand(length, dim).contiguous()


class Fraction(Position):
    """The first rejected idea: the relative position between the first word (0) and the last (1), added to each column.

    B5; see the function `fraction` for why it is rejected. The last word of a row is the one with the highest
    position. Rows must start at position 0, as whole sentences do. Otherwise this raises an error on the CPU and gives
    NaN in compiled code and on other devices, where checking would force a synchronization.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        check_size("dim", dim)
        self.dim = dim

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(dim=sizes.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        if positions.numel() == 0:
            return x
        starts = positions[..., :1] == 0  # (1,) or (B, 1)
        if positions.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(starts.all()):
            raise UsageError(
                "positions must start at 0: a fraction needs the whole sentence, and its length is unknown while it is "
                "being generated, which is why this idea is rejected; decode without a cache or with another scheme"
            )
        last = positions.amax(-1, keepdim=True).clamp(min=1)
        share = torch.where(starts, positions / last, torch.nan)  # (T,) or (B, T)
        return x + share[..., None].to(x.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Index(Position):
    """The second rejected idea: the number 1, 2, 3, … of the word, added to each column.

    B5; see the function `index` for why it is rejected.
    """

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        check_size("dim", dim)
        self.dim = dim

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(dim=sizes.dim)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        check_width("x", x, self.dim)
        check_positions("positions", positions, batch=x.shape[0], length=x.shape[-2])
        return x + (positions + 1)[..., None].to(x.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
