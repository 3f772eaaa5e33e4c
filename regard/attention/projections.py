"""The matrices in front of multi-head attention: how queries, keys and values come from the inputs.

D8, D11, D12. A projection maps (query, key, value), each (B, length, width), to q, k, v of each head, (B, heads,
length, d). `queries` computes q alone, and `project_source` k and v alone, for a source that many queries attend to.

    B batch   p input width   H heads   G key-value heads   d_k, d_v head widths
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FORMS = ("projected", "slice")


class HeadSizes(NamedTuple):
    """The number of heads and their widths."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int

    @property
    def rows(self) -> tuple[int, int, int]:
        """The rows of W_Q, W_K and W_V."""
        return self.heads * self.d_k, self.kv_heads * self.d_k, self.kv_heads * self.d_v


class StackedProjection(nn.Module):
    """W_Q, W_K, W_V of all heads as one stacked matrix: self-attention takes one product, cross-attention two.

    Vaswani et al. 2017, section 3.2.2; D11. For queries, keys and values of one width.
    """

    def __init__(self, *, dim: int, sizes: HeadSizes, bias: bool) -> None:
        super().__init__()
        self.sizes, self.rows = sizes, sizes.rows
        self.weight = nn.Parameter(torch.empty(sum(self.rows), dim))
        self.bias = nn.Parameter(torch.zeros(sum(self.rows))) if bias else None
        for part in self.weight.split(self.rows):  # initialize each matrix by its own size
            nn.init.xavier_uniform_(part)

    @property
    def traits(self) -> frozenset[str]:
        """None of its own: the layer around it reports its head sizes and its bias."""
        return frozenset()

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if key is not query or value is not query:
            return self.queries(query), *self.project_source(key, value)
        q, k, v = self.split_heads(F.linear(query, self.weight, self.bias))
        return q, k, v

    def queries(self, query: Tensor) -> Tensor:
        return cut_heads(self._product(query, 0, 1), self.sizes.heads, self.sizes.d_k)

    def project_source(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        _, G, d_k, d_v = self.sizes
        if key is not value:
            return cut_heads(self._product(key, 1, 2), G, d_k), cut_heads(self._product(value, 2, 3), G, d_v)
        k, v = self.split_heads(self._product(key, 1, 3), first=1)
        return k, v

    def split_heads(self, x: Tensor, first: int = 0) -> list[Tensor]:
        """Split q, k and v side by side, (B, length, rows), into heads (B, heads, length, d); first=1: k and v only."""
        H, G, d_k, d_v = self.sizes
        if d_k == d_v:  # heads of one width are split all at once
            counts = (H, G, G)[first:]
            parts = x.view(*x.shape[:2], sum(counts), d_k).split_with_sizes(counts, dim=2)
            return [part.transpose(1, 2) for part in parts]
        parts = x.split_with_sizes(self.rows[first:], dim=-1)
        widths = ((H, d_k), (G, d_k), (G, d_v))[first:]
        return [cut_heads(part, count, d) for part, (count, d) in zip(parts, widths, strict=True)]

    def _product(self, x: Tensor, first: int, last: int) -> Tensor:
        """Multiply x by the matrices number `first` to `last` - 1 of W_Q, W_K, W_V."""
        rows = slice(sum(self.rows[:first]), sum(self.rows[:last]))
        return F.linear(x, self.weight[rows], None if self.bias is None else self.bias[rows])


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
            bound = math.sqrt(6 / (dim // heads + d))  # initialize each head's matrix by its own size
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


def make_projection(
    form: str, dims: tuple[int, int, int], sizes: HeadSizes, *, bias: bool
) -> StackedProjection | SeparateProjection | SlicedProjection:
    """Make the projection for queries, keys and values of the widths `dims`."""
    dim = dims[0]
    if form == "slice":
        if sizes.kv_heads != sizes.heads or dims != (dim,) * 3:
            raise ValueError("form 'slice' cuts one input into one slice a head: no kv_heads, key_dim or value_dim")
        return SlicedProjection(dim=dim, sizes=sizes, bias=bias)
    if dims == (dim,) * 3:
        return StackedProjection(dim=dim, sizes=sizes, bias=bias)
    return SeparateProjection(dims=dims, sizes=sizes, bias=bias)


def make_output(rows: int, dim: int, *, bias: bool) -> nn.Linear:
    """Make W^O, which maps the concatenated heads (B, m, rows) to (B, m, dim)."""
    output = nn.Linear(rows, dim, bias=bias)
    nn.init.xavier_uniform_(output.weight)
    if bias:
        nn.init.zeros_(output.bias)
    return output


def cut_heads(x: Tensor, heads: int, d: int) -> Tensor:
    """(B, length, heads · d) -> (B, heads, length, d)."""
    return x.view(x.shape[0], x.shape[1], heads, d).transpose(1, 2)
