"""Multi-head attention: several small attentions side by side, each with its own view of the input.

Vaswani et al. 2017, section 3.2.2; D8, D11, D12, D13.

    B batch   H heads   G key-value heads   m queries   n keys   d_k, d_v head widths
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.cache import KVCache, ProjectedSource, StaticCache, WindowCache
from regard.attention.checks import check_mask
from regard.attention.dispatch import BACKENDS, Backend, attend
from regard.attention.mask_rules import Mask, Window, as_mask
from regard.attention.projections import (
    HeadSizes,
    SeparateProjection,
    SlicedProjection,
    StackedProjection,
    cut_heads,
)
from regard.attention.scores import Score
from regard.errors import unknown_name
from regard.kernels.training.short_attention import attend_shortly, short_fits
from regard.positions import Position, make_position

FORMS = ("projected", "slice")
Cache = KVCache | StaticCache | WindowCache | ProjectedSource


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_H) W^O with head_i = attend(Q W_i^Q, K W_i^K, V W_i^V).

    Vaswani et al. 2017, section 3.2.2; D11, D12, D13.

        kv_heads   fewer heads for keys and values: grouped-query (Ainslie et al. 2023), 1 is multi-query (Shazeer 2019)
        d_k, d_v   widths of a head's keys and values, dim / heads when not given
        key_dim, value_dim   widths of the inputs of keys and values where they differ from dim (cross-attention)
        form       "projected": each head projects the whole input (D11); "slice": only its own slice of it (D12)
        position   a scheme inside attention (rotary, relative, T5, ALiBi), as a module of regard.positions or by name
        qk_norm    normalise queries and keys per head before the score (Henry et al. 2020)
        window     self-attention looks at so many tokens only, itself and those next to it (Beltagy et al. 2020)
        output     False leaves out W^O, as L4 does: the heads are only concatenated
    """

    returns_weights = True  # regard.record asks such modules for their weights

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        form: Literal["projected", "slice"] = "projected",
        position: Position | str | None = None,
        qk_norm: bool = False,
        window: int | None = None,
        bias: bool = True,
        output: bool = True,
        dropout: float = 0.0,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        _check_sizes(dim, heads, kv_heads, d_k, d_v, form)
        if backend not in BACKENDS:
            raise ValueError(unknown_name("backend", backend, BACKENDS))
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is a share from 0 up to, but not including, 1; got {dropout}")
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.d_k = dim // heads if d_k is None else d_k
        self.d_v = dim // heads if d_v is None else d_v
        if window is not None and window < 1:
            raise ValueError(f"window counts tokens from 1, the token itself; got {window}")
        self.dropout, self.backend, self.window = dropout, backend, window
        self.has_bias = bias
        self.position = _scheme(position, dim, heads, self.d_k, self.d_v)

        self.key_dim = dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        dims = (dim, self.key_dim, self.value_dim)
        sizes = HeadSizes(heads, kv_heads, self.d_k, self.d_v)
        self.input: StackedProjection | SeparateProjection | SlicedProjection
        if form == "slice":
            if kv_heads != heads or dims != (dim,) * 3:
                raise ValueError("form 'slice' cuts one input into one slice a head: no kv_heads, key_dim or value_dim")
            self.input = SlicedProjection(dim=dim, sizes=sizes, bias=bias)
        elif dims == (dim,) * 3:
            self.input = StackedProjection(dim=dim, sizes=sizes, bias=bias)
        else:
            self.input = SeparateProjection(dims=dims, sizes=sizes, bias=bias)
        self.q_norm = nn.RMSNorm(self.d_k) if qk_norm else None
        self.k_norm = nn.RMSNorm(self.d_k) if qk_norm else None
        self.output = nn.Linear(heads * self.d_v, dim, bias=bias) if output else None
        if self.output is not None:
            nn.init.xavier_uniform_(self.output.weight)
            if bias:
                nn.init.zeros_(self.output.bias)

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes, by the options in use; see regard.traits."""
        options = {
            "grouped-query": self.kv_heads != self.heads,
            "head-widths": not self.d_k == self.d_v == self.dim / self.heads,
            "input-widths": not self.key_dim == self.value_dim == self.dim,
            "slice": isinstance(self.input, SlicedProjection),
            "qk-norm": self.q_norm is not None,
            "window": self.window is not None,
            "no-output": self.output is None,
            "attention-bias": self.has_bias,
        }
        return frozenset({"attention", *(name for name, used in options.items() if used)})

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        score: Score | None = None,
        return_weights: bool = False,
        constant_bias: bool = False,
        seed: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, m, dim) -> (B, m, dim), with `return_weights` also the weights (B, H, m, n) before dropout.

        Self-attention when only `query` is given; `key` alone also gives the values. A KVCache or StaticCache adds
        the new tokens to those before; a ProjectedSource stands in for `key` and `value`. A `score` replaces the
        scaled product of queries and keys, and what positions add to it. If `constant_bias`, that of W^O gets no
        gradient here. A kernel that draws dropout itself takes it from `seed`, or else from one of its own.
        """
        rows = query.shape[0]
        if isinstance(cache, ProjectedSource) and cache.k.shape[0] != rows:  # rows side by side that look at one text
            query = query.view(cache.k.shape[0], -1, self.dim)
        dropout = self.dropout if self.training else 0.0
        if dropout and cache is None and bias is None and score is None and not return_weights:
            shortly = self._attend_shortly(query, key, value, mask, causal, dropout, seed)
            if shortly is not None:
                return self._end(shortly, constant_bias)
        q, k, v = self._project(query, key, value, cache)
        m, position = query.shape[1], self.position
        if position is not None:
            i = torch.arange(m, device=q.device) if cache is None else cache.positions(m)
            q, k = position.rotate(q, i), position.rotate(k, i)
        if self.window is not None and not (isinstance(cache, WindowCache) and m == 1):  # it holds no more than that
            near_by = Window(self.window - 1, 0 if causal else self.window - 1)
            mask = near_by if mask is None else as_mask(mask) & near_by
        if cache is not None:
            k, v = cache.append(k, v)
            mask, causal = cache.restrict(mask, causal, m)
        if position is not None:
            j = cache.places(k) if isinstance(cache, WindowCache) else torch.arange(k.shape[2], device=k.device)
            near = position.bias(q, i, j) if score is None else None
            if near is not None:
                bias = near if bias is None else bias + near

        if return_weights or score is not None or (position is not None and position.needs_weights):
            y, weights = attend(
                q, k, v, mask=mask, bias=bias, causal=causal, score=score or "scaled", dropout=dropout,
                return_weights=True,
            )  # fmt: skip
            if position is not None and (extra := position.mix(weights, i, j)) is not None:
                y = y + extra
        else:
            y = attend(q, k, v, mask=mask, bias=bias, causal=causal, dropout=dropout, backend=self.backend)
        y = self._end(y, constant_bias)
        if y.shape[0] != rows:
            y = y.view(rows, -1, y.shape[-1])
            if return_weights:
                weights = weights.transpose(1, 2).reshape(rows, -1, *weights.shape[1::2]).transpose(1, 2)
        return (y, weights) if return_weights else y

    def _end(self, y: Tensor, constant_bias: bool) -> Tensor:
        y = y.transpose(1, 2).flatten(2)  # Concat(head_1 … head_H)
        if self.output is None:
            return y
        return F.linear(y, self.output.weight, self.output.bias.detach()) if constant_bias else self.output(y)

    def _attend_shortly(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Mask | Tensor | None,
        causal: bool,
        dropout: float,
        seed: Tensor | None,
    ) -> Tensor | None:
        """The heads' results (B, H, m, d) where the kernel for short texts also finds the gradient of the bias."""
        key, projection, d = query if key is None else key, self.input, self.d_k
        if not isinstance(projection, StackedProjection) or projection.bias is None or self.backend != "auto":
            return None
        if value is not None or any(one is not None for one in (self.position, self.q_norm, self.window)):
            return None
        widths = self.kv_heads * d, self.heads * self.d_v, query.shape[-1], key.shape[-1]
        if query.dim() != 3 or key.dim() != 3 or any(width != self.heads * d for width in widths):
            return None
        q, k = cut_heads(query, self.heads, d), cut_heads(key, self.heads, d)  # not yet projected, but of that shape
        if not short_fits(q, k, k, mask, None, dropout):
            return None
        if isinstance(mask, Tensor):
            mask = check_mask(mask, q, k)
        q, k, v = projection(query, key, key, constant=True)
        scale, projected = 1 / math.sqrt(d), projection.bias
        return attend_shortly(
            q, k, v, mask=mask, causal=causal, scale=scale, dropout=dropout, projected=projected, seed=seed
        )

    def project_source(self, key: Tensor, value: Tensor | None = None) -> ProjectedSource:
        """Project the keys and values of a text (B, n, width) once, for the many queries that will look at it."""
        value = key if value is None else value
        self._check_text(key, value)
        k, v = self.input.project_source(key, value)
        return ProjectedSource(k if self.k_norm is None else self.k_norm(k), v)

    def new_cache(
        self, batch: int, capacity: int, *, static: bool = False, recorded: bool | None = None
    ) -> KVCache | StaticCache | WindowCache:
        """An empty cache for this layer, on its device and in its dtype; `static` as StaticCache describes it.

        With a window it takes texts of any length, whatever `capacity` and `static`; but not while somebody records
        weights, which are over all keys: `recorded`, by default as hooks on this layer tell.
        """
        like = next(self.parameters())
        recorded = bool(self._forward_pre_hooks) if recorded is None else recorded
        room = capacity if self.window is None or recorded else self.window - 1
        k = like.new_zeros(batch, self.kv_heads, room, self.d_k)
        v = like.new_zeros(batch, self.kv_heads, room, self.d_v)
        lengths = torch.zeros(batch, dtype=torch.long, device=like.device)
        if self.window is not None and not recorded:
            return WindowCache(k, v, lengths)
        return StaticCache(k, v, lengths) if static else KVCache(k, v)

    def _project(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs as q (B, H, m, d_k), k (B, G, n, d_k) and v (B, G, n, d_v)."""
        if query.dim() != 3 or query.shape[2] != self.dim:
            raise ValueError(f"query must be (B, length, {self.dim}), got {tuple(query.shape)}")
        own = (key is None or key is query) and (value is None or value is query)
        if isinstance(cache, ProjectedSource):
            if not own:
                raise ValueError("a ProjectedSource holds the keys and values already: give it without key and value")
            q = self.input.queries(query)
            return q if self.q_norm is None else self.q_norm(q), cache.k, cache.v
        if not own and (self.position is not None or self.window is not None):
            what = "positions inside attention are" if self.window is None else "a window is"
            raise ValueError(f"{what} for self-attention; cross-attention takes position=None and window=None")
        key = query if key is None else key
        value = key if value is None else value
        if not (own and self.key_dim == self.value_dim == self.dim):
            self._check_text(key, value)
        q, k, v = self.input(query, key, value)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def _check_text(self, key: Tensor, value: Tensor) -> None:
        for name, x, width in (("key", key, self.key_dim), ("value", value, self.value_dim)):
            if x.dim() != 3 or x.shape[2] != width:
                raise ValueError(f"{name} must be (B, length, {width}), got {tuple(x.shape)}")

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, kv_heads={self.kv_heads}, d_k={self.d_k}, d_v={self.d_v}"


def _check_sizes(dim: int, heads: int, kv_heads: int, d_k: int | None, d_v: int | None, form: str) -> None:
    if form not in FORMS:
        raise ValueError(unknown_name("form", form, FORMS))
    for name, size in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads), ("d_k", d_k), ("d_v", d_v)):
        if size is not None and size < 1:
            raise ValueError(f"{name} counts from 1, got {size}")
    if dim % heads and (d_k is None or d_v is None or form == "slice"):
        raise ValueError(f"dim={dim} does not split into heads={heads} equal parts; give d_k and d_v, or other heads")
    if heads % kv_heads:
        raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}: each group of heads shares one")


def _scheme(position: Position | str | None, dim: int, heads: int, d_k: int, d_v: int) -> Position | None:
    """The scheme as a module; one that acts on the embeddings has no business inside attention."""
    if position is None or position == "none":
        return None
    if isinstance(position, str):
        position = make_position(position, dim=dim, heads=heads, head_dim=d_k, value_dim=d_v)
    if position.acts_on != "attention":
        raise ValueError(
            f"position {type(position).__name__} acts on the embeddings; inside attention: rotary, relative, t5, alibi"
        )
    return position
