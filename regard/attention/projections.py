"""How queries, keys and values come from the inputs: the matrices in front of multi-head attention.

D8, D11, D12. A projection maps (query, key, value), each (B, length, width), to q, k, v with all heads side by
side, (B, length, H · d). Its halves are `queries`, q alone, and `remember`, k and v alone, for a text that many
queries will look at.

    p input width   H heads   d_k, d_v head widths
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class StackedProjection(nn.Module):
    """All heads' W_Q, W_K, W_V as one stacked matrix: self-attention takes one product, cross-attention two.

    Vaswani et al. 2017, section 3.2.2; D11. For queries, keys and values of one width.
    """

    def __init__(self, *, dim: int, sizes: tuple[int, int, int], bias: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.weight = nn.Parameter(torch.empty(sum(sizes), dim))
        self.bias = nn.Parameter(torch.zeros(sum(sizes))) if bias else None
        for part in self.weight.split(sizes):  # each matrix by its own size, as if it stood alone
            nn.init.xavier_uniform_(part)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if key is query and value is query:
            q, k, v = F.linear(query, self.weight, self.bias).split(self.sizes, dim=-1)
            return q, k, v
        return self.queries(query), *self.remember(key, value)

    def queries(self, query: Tensor) -> Tensor:
        return self._part(query, 0, 1)

    def remember(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if key is value:
            k, v = self._part(key, 1, 3).split(self.sizes[1:], dim=-1)
            return k, v
        return self._part(key, 1, 2), self._part(value, 2, 3)

    def _part(self, x: Tensor, first: int, last: int) -> Tensor:
        rows = slice(sum(self.sizes[:first]), sum(self.sizes[:last]))
        return F.linear(x, self.weight[rows], None if self.bias is None else self.bias[rows])


class SeparateProjection(nn.Module):
    """W_Q, W_K, W_V for queries, keys and values of different widths; D4, D8."""

    def __init__(self, *, dims: tuple[int, int, int], sizes: tuple[int, int, int], bias: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(dim, size, bias=bias) for dim, size in zip(dims, sizes, strict=True)
        )
        for layer in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries(query), *self.remember(key, value)

    def queries(self, query: Tensor) -> Tensor:
        return self.query(query)

    def remember(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.key(key), self.value(value)


class SlicedProjection(nn.Module):
    """Head h projects only its own slice of width p/H of the input: block-diagonal W_Q, W_K, W_V; D12."""

    def __init__(self, *, dim: int, heads: int, sizes: tuple[int, int, int], bias: bool) -> None:
        super().__init__()
        self.heads = heads
        for name, size in zip("qkv", sizes, strict=True):
            block = torch.empty(heads, dim // heads, size // heads)
            for one in block:
                nn.init.xavier_uniform_(one)
            setattr(self, f"{name}_weight", nn.Parameter(block))
            setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(size)) if bias else None)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries(query), *self.remember(key, value)

    def queries(self, query: Tensor) -> Tensor:
        return self._blocks(query, "q")

    def remember(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self._blocks(key, "k"), self._blocks(value, "v")

    def _blocks(self, x: Tensor, name: str) -> Tensor:
        weight, bias = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
        slices = x.unflatten(-1, (self.heads, -1))  # (B, length, H, p/H)
        y = torch.einsum("blhp,hpd->blhd", slices, weight).flatten(-2)  # (B, length, H · d)
        return y if bias is None else y + bias
