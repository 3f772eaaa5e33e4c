"""How queries, keys and values come from the inputs: the matrices in front of multi-head attention.

D8, D11, D12. A projection maps (query, key, value), each (B, length, width), to q, k, v of each head, (B, heads,
length, d). Its halves are `queries`, q alone, and `project_source`, k and v alone, for a text that many
queries will look at.

    B batch   p input width   H heads   G key-value heads   d_k, d_v head widths
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.kernels.training.fused_dropout import draws


class HeadSizes(NamedTuple):
    """How many heads of which widths."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """The rows of W_Q, W_K and W_V."""
        return self.heads * self.d_k, self.kv_heads * self.d_k, self.kv_heads * self.d_v


class StackedProjection(nn.Module):
    """All heads' W_Q, W_K, W_V as one stacked matrix: self-attention takes one product, cross-attention two.

    Vaswani et al. 2017, section 3.2.2; D11. For queries, keys and values of one width.
    """

    def __init__(self, *, dim: int, sizes: HeadSizes, bias: bool) -> None:
        super().__init__()
        self.sizes, self.rows = sizes, sizes.rows
        self.weight = nn.Parameter(torch.empty(sum(self.rows), dim))
        self.bias = nn.Parameter(torch.zeros(sum(self.rows))) if bias else None
        for part in self.weight.split(self.rows):  # each matrix by its own size, as if it stood alone
            nn.init.xavier_uniform_(part)

    @property
    def traits(self) -> frozenset[str]:
        """None of its own: the layer around it reports its head sizes and its bias."""
        return frozenset()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, *, constant: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """If `constant`, the bias gets no gradient here: it is left to who finds those of q, k and v."""
        if key is not query or value is not query:
            return self.queries(query, constant=constant), *self.project_source(key, value, constant=constant)
        if not constant and self.bias is not None and self.training and self._even() and draws("heads", query, 0.0):
            from regard.kernels.training.split_heads_triton import CutHeads

            q, k, v = CutHeads.apply(self._part(query, 0, 3, constant=True), self.bias, self.sizes.heads)
            return q, k, v
        q, k, v = self._cut(self._part(query, 0, 3, constant), 0)
        return q, k, v

    def _even(self) -> bool:
        """Whether q, k and v have as many numbers."""
        return self.sizes.heads == self.sizes.kv_heads and self.sizes.d_k == self.sizes.d_v

    def queries(self, query: Tensor, *, constant: bool = False) -> Tensor:
        return cut_heads(self._part(query, 0, 1, constant), self.sizes.heads, self.sizes.d_k)

    def project_source(self, key: Tensor, value: Tensor, *, constant: bool = False) -> tuple[Tensor, Tensor]:
        _, G, d_k, d_v = self.sizes
        if key is not value:
            k, v = self._part(key, 1, 2, constant), self._part(value, 2, 3, constant)
            return cut_heads(k, G, d_k), cut_heads(v, G, d_v)
        k, v = self._cut(self._part(key, 1, 3, constant), 1)
        return k, v

    def _cut(self, x: Tensor, first: int) -> list[Tensor]:
        """q, k and v side by side, or without the `first` of them, (B, length, rows) -> the heads of each."""
        H, G, d_k, d_v = self.sizes
        if d_k == d_v:  # heads of one width are cut all at once
            counts = (H, G, G)[first:]
            parts = x.view(*x.shape[:2], sum(counts), d_k).split_with_sizes(counts, dim=2)
            return [part.transpose(1, 2) for part in parts]
        parts = x.split_with_sizes(self.rows[first:], dim=-1)
        widths = ((H, d_k), (G, d_k), (G, d_v))[first:]
        return [cut_heads(part, count, d) for part, (count, d) in zip(parts, widths, strict=True)]

    def _part(self, x: Tensor, first: int, last: int, constant: bool) -> Tensor:
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias.detach() if constant and self.bias is not None else self.bias
        if last - first < 3:
            rows = slice(sum(self.rows[:first]), sum(self.rows[:last]))
            weight, bias = weight[rows], None if bias is None else bias[rows]
        return F.linear(x, weight, bias)


class SeparateProjection(nn.Module):
    """W_Q, W_K, W_V for queries, keys and values of different widths; D4, D8."""

    def __init__(self, *, dims: tuple[int, int, int], sizes: HeadSizes, bias: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.query, self.key, self.value = (
            nn.Linear(dim, rows, bias=bias) for dim, rows in zip(dims, sizes.rows, strict=True)
        )
        for layer in (self.query, self.key, self.value):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"input-widths"})

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries(query), *self.project_source(key, value)

    def queries(self, query: Tensor) -> Tensor:
        return cut_heads(self.query(query), self.sizes.heads, self.sizes.d_k)

    def project_source(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        _, G, d_k, d_v = self.sizes
        return cut_heads(self.key(key), G, d_k), cut_heads(self.value(value), G, d_v)


class SlicedProjection(nn.Module):
    """Head h projects only its own slice of width p/H of the input: block-diagonal W_Q, W_K, W_V; D12."""

    def __init__(self, *, dim: int, sizes: HeadSizes, bias: bool) -> None:
        super().__init__()
        self.heads = heads = sizes.heads
        for name, d in (("q", sizes.d_k), ("k", sizes.d_k), ("v", sizes.d_v)):
            bound = math.sqrt(6 / (dim // heads + d))  # of each head's matrix by its own size, as if it stood alone
            block = torch.empty(heads, dim // heads, d).uniform_(-bound, bound)
            setattr(self, f"{name}_weight", nn.Parameter(block))
            setattr(self, f"{name}_bias", nn.Parameter(torch.zeros(heads * d)) if bias else None)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"slice"})

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.queries(query), *self.project_source(key, value)

    def queries(self, query: Tensor) -> Tensor:
        return self._blocks(query, "q")

    def project_source(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self._blocks(key, "k"), self._blocks(value, "v")

    def _blocks(self, x: Tensor, name: str) -> Tensor:
        weight, bias = getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")
        slices = x.unflatten(-1, (self.heads, -1))  # (B, length, H, p/H)
        y = torch.einsum("blhp,hpd->bhld", slices, weight)
        return y if bias is None else y + bias.view(self.heads, 1, -1)


def cut_heads(x: Tensor, heads: int, d: int) -> Tensor:
    """(B, length, heads · d) -> (B, heads, length, d)."""
    return x.view(x.shape[0], x.shape[1], heads, d).transpose(1, 2)
