"""ALiBi: no position vectors; each head attends less to keys that are further away.

Letters: B batch, H heads, m queries, n keys.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from regard.positions.interface import ModelSizes, Position, check_heads, check_size, distance


def slopes(heads: int, *, device: torch.device | str | None = None) -> Tensor:
    """Return how fast each head's attention falls with the distance, (H,).

    Press et al. 2022, section 3: 2^(-8h/H) for h = 1 … H where H is a power of two. For other H the slopes of
    the next lower power P come first, then every second one of those of 2P, as in the authors' code.
    """
    check_size("heads", heads)
    P = 1 << (heads.bit_length() - 1)
    h = torch.arange(1, P + 1, device=device, dtype=torch.float32)
    odd = torch.arange(heads - P, device=device, dtype=torch.float32) * 2 + 1
    return torch.exp2(torch.cat((-8 * h / P, -8 * odd / (2 * P))))


class Alibi(Position):
    """A fixed penalty on the scores that grows with the distance, with a different slope for each head.

    Press et al. 2022, section 3; B8. The bias is -slope * |i - j|: under a causal mask that is the paper's
    -slope * (i - j), and without one it treats both directions alike.
    """

    acts_on = "attention"

    def __init__(self, *, heads: int) -> None:
        super().__init__()
        check_size("heads", heads)
        self.heads = heads

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(heads=sizes.heads)

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        check_heads(q, self.heads)
        distances = distance(q, i, j).abs()[..., None, :, :]  # (1, m, n) or (B, 1, m, n)
        slope = slopes(self.heads, device=q.device)[:, None, None]  # (H, 1, 1)
        return (-slope * distances).to(q.dtype)  # (H, m, n) or (B, H, m, n)

    def extra_repr(self) -> str:
        return f"heads={self.heads}"
