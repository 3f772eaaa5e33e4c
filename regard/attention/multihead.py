"""Multi-head attention: several small attentions side by side, each with its own view of the input.

Vaswani et al. 2017, section 3.2.2; D8, D11, D12, D13.

    B batch   H heads   G key-value heads   m queries   n keys   d_k, d_v head widths
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache, ProjectedSource, StaticCache, WindowCache, make_cache
from regard.attention.checks import check_input, check_name, check_options, check_roles, check_score_alone
from regard.attention.dispatch import BACKENDS, Backend, attend
from regard.attention.masks.algebra import Mask
from regard.attention.masks.rules import within_window
from regard.attention.projections import FORMS, HeadSizes, SlicedProjection, make_output, make_projection
from regard.attention.scores import Score, make_layer_score
from regard.errors import deprecated_name
from regard.positions import Position
from regard.positions.by_name import make_attention_position

Cache = KVCache | StaticCache | WindowCache | ProjectedSource


class MultiHeadAttention(nn.Module):
    """Concat(head_1 … head_H) W^O with head_i = attend(Q W_i^Q, K W_i^K, V W_i^V).

    Vaswani et al. 2017, section 3.2.2; D11, D12, D13.

        kv_heads   fewer heads for keys and values: grouped-query (Ainslie et al. 2023), 1 is multi-query (Shazeer 2019)
        d_k, d_v   widths of a head's keys and values; default dim / heads
        key_dim, value_dim   widths of the inputs of keys and values where they differ from dim (cross-attention)
        form       "projected": each head projects the whole input (D11); "slice": only its own slice of it (D12)
        position   a scheme inside attention (rotary, relative, T5, ALiBi), as a module of regard.positions or by name
        score      what replaces the scaled dot product: a name, a module, or a function (q, k) -> (B, H, m, n)
        qk_norm    normalize queries and keys per head before the score (Henry et al. 2020)
        window     tokens that self-attention covers: the token itself and its neighbours (Beltagy et al. 2020)
        output     False omits W^O, as L4 does: the heads are only concatenated
        input_bias   whether W^Q, W^K and W^V have a bias; by default as `bias`, which is also that of W^O
        norm_eps   the epsilon of qk_norm; by default that of the dtype

    >>> MultiHeadAttention(dim=16, heads=4)(torch.randn(2, 5, 16), causal=True).shape
    torch.Size([2, 5, 16])
    """

    returns_weights = True  # regard.record records the weights of such modules

    def __init__(
        self, *, dim: int, heads: int, kv_heads: int | None = None, d_k: int | None = None, d_v: int | None = None,
        key_dim: int | None = None, value_dim: int | None = None, form: Literal["projected", "slice"] = "projected",
        position: Position | str | None = None, score: str | Score | None = None, qk_norm: bool = False,
        window: int | None = None, bias: bool = True, output: bool = True, dropout: float = 0.0,
        backend: Backend = "auto", input_bias: bool | None = None, norm_eps: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_name("form", form, FORMS)
        check_name("backend", backend, BACKENDS)
        check_options(dim, heads, kv_heads, d_k, d_v, slices=form == "slice", dropout=dropout, window=window)
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.d_k = dim // heads if d_k is None else d_k
        self.d_v = dim // heads if d_v is None else d_v
        self.key_dim = dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        input_bias = bias if input_bias is None else input_bias
        self.dropout, self.backend, self.window = dropout, backend, window
        self.has_bias, self.has_input_bias = bias, input_bias
        self.position = make_attention_position(position, dim=dim, heads=heads, head_dim=self.d_k, value_dim=self.d_v)
        self.score = make_layer_score(score, self.d_k)
        check_score_alone(self.score, self.position)
        sizes = HeadSizes(heads, kv_heads, self.d_k, self.d_v)
        self.input = make_projection(form, (dim, self.key_dim, self.value_dim), sizes, bias=input_bias)  # W^Q, W^K, W^V
        self.q_norm = nn.RMSNorm(self.d_k, eps=norm_eps) if qk_norm else None
        self.k_norm = nn.RMSNorm(self.d_k, eps=norm_eps) if qk_norm else None
        self.output = make_output(heads * self.d_v, dim, bias=bias) if output else None  # W^O

    @staticmethod
    def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Return a layer with a copy of PyTorch's weights. It takes (B, length, dim), and True = may attend."""
        from regard.attention.torch_weights import attention_from_torch

        return attention_from_torch(module)

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes, by the options in use; see regard.traits."""
        options = {
            "grouped-query": self.kv_heads != self.heads,
            "head-widths": not self.d_k == self.d_v == self.dim / self.heads,
            "input-widths": not self.key_dim == self.value_dim == self.dim,
            "score": self.score is not None,
            "slice": isinstance(self.input, SlicedProjection),
            "qk-norm": self.q_norm is not None,
            "window": self.window is not None,
            "no-output": self.output is None,
            "attention-bias": self.has_bias,
            "input-bias": self.has_bias != self.has_input_bias,
        }
        return frozenset({"attention", *(name for name, used in options.items() if used)})

    def forward(
        self,
        query: Tensor,  # (B, m, dim)
        key: Tensor | None = None,  # (B, n, key_dim), default `query`: self-attention
        value: Tensor | None = None,  # (B, n, value_dim), default `key`
        *,
        mask: Mask | Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        cache: Cache | None = None,
        score: Score | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return (B, m, dim); with `return_weights` also the weights (B, H, m, n) before dropout.

        A KVCache, StaticCache or WindowCache prepends the earlier tokens; a ProjectedSource replaces `key` and
        `value`. A `score` replaces the scaled dot product, including the term that positions add to it.
        """
        rows = query.shape[0]  # len() would fix the batch size in an exported program
        if isinstance(cache, ProjectedSource):
            query = cache.group(query)
        q, k, v = self._project(query, key, value, cache)
        y, weights = self._heads(
            q, k, v, mask=mask, bias=bias, causal=causal, cache=cache, score=score, return_weights=return_weights
        )
        y = y.transpose(1, 2).flatten(2)  # Concat(head_1 … head_H): (B, H, m, d_v) -> (B, m, H·d_v)
        if self.output is not None:
            y = self.output(y)
        if isinstance(cache, ProjectedSource):
            y, weights = cache.ungroup(rows, y, weights)
        return (y, weights) if return_weights and weights is not None else y

    def _heads(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Mask | Tensor | None = None, bias: Tensor | None = None,
        causal: bool = False, cache: Cache | None = None, score: Score | None = None, return_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return head_1 … head_H as (B, H, m, d_v), and the weights (B, H, m, n) if they are computed."""
        score = self.score if score is None else score
        m, position = q.shape[2], self.position
        dropout = self.dropout if self.training else 0.0
        if position is not None:
            i = torch.arange(m, device=q.device) if cache is None else cache.positions(m)  # (m,)
            q, k = position.rotate(q, i), position.rotate(k, i)
        if self.window is not None and not (isinstance(cache, WindowCache) and m == 1):  # which has no others
            mask = within_window(mask, self.window, causal)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, G, n, d_k), (B, G, n, d_v): earlier tokens first
            mask, causal = cache.restrict(mask, causal, m)
        if position is not None:
            j = cache.key_positions(k) if isinstance(cache, WindowCache) else torch.arange(k.shape[2], device=k.device)
            relative = position.bias(q, i, j) if score is None else None  # broadcasts to (B, H, m, n)
            if relative is not None:
                bias = relative if bias is None else bias + relative

        if not (return_weights or score is not None or (position is not None and position.needs_weights)):
            return self._attend(q, k, v, mask, bias, causal, dropout), None
        y, weights = attend(
            q, k, v, mask=mask, bias=bias, causal=causal, score=score or "scaled", dropout=dropout, return_weights=True
        )
        if position is not None and (term := position.mix(weights, i, j)) is not None:
            y = y + term
        return y, weights

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, bias: Tensor | None, causal: bool, p: float
    ) -> Tensor:
        """softmax(q k^T / sqrt(d_k) + bias) v of each head, with dropout p on the weights; equation 1."""
        return attend(q, k, v, mask=mask, bias=bias, causal=causal, dropout=p, backend=self.backend)

    def _project(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return q (B, H, m, d_k), k (B, G, n, d_k) and v (B, G, n, d_v)."""
        check_input("query", query, self.dim)
        self_attention = (key is None or key is query) and (value is None or value is query)
        if isinstance(cache, ProjectedSource):
            if not self_attention:
                raise ValueError("a ProjectedSource holds the keys and values already: give it without key and value")
            q = self.input.queries(query)
            return q if self.q_norm is None else self.q_norm(q), cache.k, cache.v
        check_roles(self_attention, self.position, self.window)
        key, value = self._source(query if key is None else key, value)
        q, k, v = self.input(query, key, value)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def project_source(self, key: Tensor, value: Tensor | None = None) -> ProjectedSource:
        """Project a source (B, n, ·) once, for the many queries of cross-attention."""
        k, v = self.input.project_source(*self._source(key, value))
        return ProjectedSource(k if self.k_norm is None else self.k_norm(k), v)

    def _source(self, key: Tensor, value: Tensor | None) -> tuple[Tensor, Tensor]:
        value = key if value is None else value
        check_input("key", key, self.key_dim)
        check_input("value", value, self.value_dim)
        return key, value

    remember = deprecated_name("remember", project_source)

    def new_cache(
        self, batch: int, capacity: int, *, static: bool = False, recorded: bool | None = None
    ) -> KVCache | StaticCache | WindowCache:
        """Return an empty cache on this layer's device and in its dtype; for `static` see StaticCache.

        A window needs only its last tokens, unless weights are recorded (default: if there are hooks).
        """
        recorded = bool(self._forward_pre_hooks) if recorded is None else recorded
        window, like = None if recorded else self.window, next(self.parameters())
        return make_cache(like, (batch, self.kv_heads, self.d_k, self.d_v), capacity, window=window, static=static)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, kv_heads={self.kv_heads}, d_k={self.d_k}, d_v={self.d_v}"
