"""Learned relative positions: only the distance between a key and the query matters.

Letters: B batch, H heads, m queries, n keys, D width of a head, k the largest distance that has parameters of its own.
"""

from __future__ import annotations

import math
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.positions.interface import ModelSizes, Position, check_heads, check_size, check_width, distance


class ShawRelative(Position):
    """A trained vector for each distance up to k, added to the key and, with values=True, to the value.

    Shaw et al. 2018, equations 3 and 4; B8. The vectors are shared by all heads; distances past max_distance
    count as max_distance. value_dim is the width of the values, by default head_dim. The value term needs the
    attention weights, which fast kernels do not compute.
    """

    acts_on = "attention"
    shared = False  # section 3.3: the heads share the tables, the layers do not

    def __init__(
        self, *, head_dim: int, max_distance: int = 16, values: bool = True, value_dim: int | None = None
    ) -> None:
        super().__init__()
        check_size("head_dim", head_dim)
        check_size("max_distance", max_distance)
        self.head_dim, self.max_distance, self.needs_weights = head_dim, max_distance, values
        self.key_table = nn.Parameter(torch.empty(2 * max_distance + 1, head_dim))
        width = head_dim if value_dim is None else value_dim
        check_size("value_dim", width)
        self.value_table = nn.Parameter(torch.empty(2 * max_distance + 1, width)) if values else None
        self.reset_parameters()

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(head_dim=sizes.head_dim, value_dim=sizes.value_dim)

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.key_table)
        if self.value_table is not None:
            nn.init.xavier_uniform_(self.value_table)

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        check_width("q", q, self.head_dim)
        # Equation 5: multiply q_i by the 2k + 1 vectors once, then gather one product per pair: no (m, n, D) tensor.
        products = q @ self.key_table.to(q.dtype).T * self.head_dim**-0.5  # (B, H, m, 2k+1)
        rows = self._rows(q, i, j)
        # In float32, so that the backward pass sums over all keys with one distance in float32.
        picked = _wide(products).gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))
        return picked.to(q.dtype)  # (B, H, m, n)

    def mix(self, weights: Tensor, i: Tensor, j: Tensor) -> Tensor | None:
        if self.value_table is None:
            return None
        rows = self._rows(weights, i, j)
        if weights.shape[-1] != rows.shape[-1]:
            raise ValueError(f"weights of shape {tuple(weights.shape)} do not fit the {rows.shape[-1]} positions of j")
        # Equation 3: sum the weights of all keys at one distance first. In float32, because thousands of small weights
        # share the largest distance, and in bfloat16 a large sum no longer grows when small numbers are added.
        sums = _wide(weights).new_zeros(*weights.shape[:-1], 2 * self.max_distance + 1)
        sums = sums.scatter_add(-1, rows.expand_as(weights), _wide(weights)).to(weights.dtype)  # (B, H, m, 2k+1)
        return sums @ self.value_table.to(weights.dtype)  # (B, H, m, D)

    def _rows(self, like: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return the row of each pair, clip(j - i, k) of section 3.2 counted from 0: (1, m, n) or (B, 1, m, n)."""
        k = self.max_distance
        return (distance(like, i, j).clamp(-k, k) + k)[..., None, :, :]

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, max_distance={self.max_distance}, values={self.needs_weights}"


class T5Buckets(Position):
    """A trained number for each head and bucket of distances, added to the scores.

    Raffel et al. 2020 (T5), section 2.1; B8. Small distances have a bucket each, larger ones share buckets of
    logarithmic width, and all past max_distance share the last. bidirectional gives half of the buckets to keys after
    the query; otherwise these keys, which a causal mask hides, count as distance 0.
    """

    acts_on = "attention"

    def __init__(self, *, heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        check_size("heads", heads)
        check_size("buckets", buckets, least=4 if bidirectional else 2)
        if bidirectional and buckets % 2:
            raise ValueError(f"buckets must be even, half of them for each direction, not {buckets}")
        self.buckets_per_direction = buckets // 2 if bidirectional else buckets
        self.exact_buckets = self.buckets_per_direction // 2
        check_size("max_distance", max_distance, least=self.exact_buckets + 1)
        self.heads, self.buckets, self.max_distance, self.bidirectional = heads, buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(buckets, heads))
        self.reset_parameters()

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Self:
        return cls(heads=sizes.heads, bidirectional=not sizes.causal)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance j - i, a tensor of the same shape."""
        if self.bidirectional:
            offset = (distances > 0) * self.buckets_per_direction
            size = distances.abs()
        else:
            offset = torch.zeros_like(distances)
            size = (-distances).clamp(min=0)
        # From 0 at the first large distance to 1 at max_distance; the clamp avoids log(0) for small ones.
        share = torch.log(size.clamp(min=1) / self.exact_buckets) / math.log(self.max_distance / self.exact_buckets)
        far = self.exact_buckets + (share * (self.buckets_per_direction - self.exact_buckets)).long()
        return offset + torch.where(size < self.exact_buckets, size, far.clamp(max=self.buckets_per_direction - 1))

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        check_heads(q, self.heads)
        biases = F.embedding(self.bucket(distance(q, i, j)), self.table)  # (m, n, H) or (B, m, n, H)
        return biases.movedim(-1, -3).to(q.dtype)  # (H, m, n) or (B, H, m, n)

    def extra_repr(self) -> str:
        return (
            f"heads={self.heads}, buckets={self.buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )


def _wide(x: Tensor) -> Tensor:
    """Return x in at least float32, for sums over many keys."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
