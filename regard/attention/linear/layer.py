"""Multi-head attention by random features: a layer that takes the place of MultiHeadAttention.

Peng et al. 2021, section 3; Vaswani et al. 2017, section 3.2.2; F3.

    B batch   H heads   G key-value heads   r = H/G   m queries   n keys   d_k, d_v head widths
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention.linear.cache import FeatureCache, WholeText, empty_cache, seen_weights
from regard.attention.linear.dispatch import attend_features, query_state, sum_keys
from regard.attention.linear.feature_maps import FeatureMap
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.layer_checks import check_sizes, check_width, rotating_position
from regard.attention.linear.mask_support import drop_keys
from regard.attention.linear.state import FeatureState, check_draw
from regard.attention.linear.step import take_step
from regard.attention.masks.algebra import Mask
from regard.attention.projections import HeadSizes, SeparateProjection, StackedProjection
from regard.errors import deprecated_name
from regard.positions import Position


class RandomFeatureAttention(nn.Module):
    """Concat(head_1 … head_H) W^O with head_i = attend_features(Q W_i^Q, K W_i^K, V W_i^V).

    Peng et al. 2021, section 3; F3. Its time is linear in the length, and its state has a fixed size. It takes the
    arguments of MultiHeadAttention and of RandomFeatures:

        kv_heads   fewer heads for keys and values; W, the learned scale and the gate are per key-value head
        position   rotary, as a module or by name. Schemes that add to the scores are refused: there are no scores
        gate       decay of the past, g_t = sigmoid(w_g.x_t + b_g), learned per head; for causal self-attention only
        features, map, draw, normalize, scale, learned_scale, sigma, seed, redraw_every   see RandomFeatures
        dropout    the probability with which training leaves out a whole key: there are no single weights to drop
    """

    returns_weights = True  # regard.record asks such modules for their weights
    attend: ClassVar[Callable[..., Any]] = staticmethod(attend_features)
    take_step: ClassVar[Callable[..., Tensor]] = staticmethod(take_step)

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
        position: Position | str | None = None,
        features: int | None = None,
        map: str | FeatureMap = "hyperbolic",
        draw: str = "orthogonal",
        normalize: bool | None = None,
        scale: float | None = None,
        learned_scale: bool = False,
        sigma: float = 1.0,
        gate: bool = False,
        seed: int = 0,
        redraw_every: int = 0,
        bias: bool = True,
        output: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_sizes(dim, heads, kv_heads, d_k, d_v, dropout)
        self.dropout, self.has_bias = dropout, bias
        self.dim, self.key_dim = dim, dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        self.sizes = HeadSizes(heads, kv_heads, d_k or dim // heads, d_v or dim // heads)
        self.position = rotating_position(position, dim, self.sizes)
        dims = (dim, self.key_dim, self.value_dim)
        self.input: StackedProjection | SeparateProjection
        if dims == (dim,) * 3:
            self.input = StackedProjection(dim=dim, sizes=self.sizes, bias=bias)
        else:
            self.input = SeparateProjection(dims=dims, sizes=self.sizes, bias=bias)
        self.features = RandomFeatures(
            dim=self.sizes.d_k, features=features, heads=kv_heads, map=map, draw=draw, normalize=normalize,
            scale=scale, learned_scale=learned_scale, sigma=sigma, seed=seed, redraw_every=redraw_every,
        )  # fmt: skip
        self.gate = nn.Linear(self.key_dim, kv_heads) if gate else None
        if self.gate is not None:  # at first, heads of short and of long memory: a token keeps 73% to 99.8% of the past
            nn.init.zeros_(self.gate.weight)
            with torch.no_grad():
                self.gate.bias.copy_(torch.linspace(1.0, 6.0, kv_heads))
        self.output = nn.Linear(heads * self.sizes.d_v, dim, bias=bias) if output else None
        if self.output is not None:
            nn.init.xavier_uniform_(self.output.weight)
            if bias:
                nn.init.zeros_(self.output.bias)

    @property
    def traits(self) -> frozenset[str]:
        """What this layer computes, by the options in use; see regard.traits."""
        sizes = self.sizes
        options = {
            "grouped-query": sizes.kv_heads != sizes.heads,
            "head-widths": not sizes.d_k == sizes.d_v == self.dim / sizes.heads,
            "input-widths": not self.key_dim == self.value_dim == self.dim,
            "gate": self.gate is not None,
            "key-dropout": self.dropout > 0,
            "no-output": self.output is None,
            "attention-bias": self.has_bias,
        }
        return frozenset({"random-features", *(name for name, used in options.items() if used)})

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: Mask | Tensor | None = None,
        causal: bool = False,
        cache: FeatureCache | FeatureState | WholeText | None = None,
        state: FeatureState | None = None,
        return_state: bool = False,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, FeatureState] | tuple[Tensor, Tensor]:
        """(B, m, dim) -> (B, m, dim), with `return_state` also the state, with `return_weights` the weights.

        Self-attention when only `query` is given; `key` alone also gives the values. A `state` holds the tokens before
        these; a `cache` holds such a state and is updated. For cross-attention, pass what `project_source` returned as
        `cache`: it replaces `key`, `value` and `mask`. Weights need the single keys: with a cache, regard.record must
        have started before the cache was made.
        """
        if cache is not None and (state is not None or return_state):
            raise ValueError("a cache holds the state before and after: give either cache= or state= and return_state=")
        if isinstance(cache, WholeText):
            key, mask = cache.expand(len(query), mask)
            return self.forward(query, key, mask=mask, return_weights=return_weights)
        seen = cache.seen if isinstance(cache, FeatureCache) else None
        if return_weights and (state is not None or return_state or (cache is not None and seen is None)):
            raise ValueError(
                "a state keeps sums, not single keys, so it has no weights: call the layer on the whole text, without "
                "a state or a cache, or start regard.record before the cache is made"
            )
        if isinstance(cache, FeatureState):
            return self.query_source(query, cache)
        if cache is not None and seen is None and key is None and mask is None and _is_step(query):
            return self._step(query, cache)
        q, k, v, gate = self._project(query, key, value, cache, state)
        if self.training and self.dropout:
            mask = drop_keys(k, mask, self.dropout, heads=self.sizes.heads)
        attend = partial(self.attend, q, k, v, features=self.features, mask=mask, causal=causal, gate=gate)
        if cache is not None:
            y, state = attend(state=cache.state, return_state=True)
            cache.advance(state, k.shape[2])
            weights = None if seen is None else seen_weights(q, k, gate, seen, features=self.features, causal=causal)
            return (self._join(y), weights) if return_weights else self._join(y)  # type: ignore[return-value]
        if return_state:
            y, state = attend(state=state, return_state=True)
            return self._join(y), state
        if return_weights:
            y, weights = attend(return_weights=True)
            return self._join(y), weights
        return self._join(attend(state=state))

    def _step(self, query: Tensor, cache: FeatureCache) -> Tensor:
        """The next token of each row, (B, 1, dim) -> (B, 1, dim): as the general case, in fewer operations."""
        check_width("query", query, self.dim)
        check_draw(cache.state, self.features.draw)
        q, k, v = self.input(query, query, query)
        gate = None if self.gate is None else self.gate(query)  # (B, 1, G)
        y = self._step_heads(q, k, v, gate, cache)
        cache.advance(cache.state, 1)
        return y if self.output is None else self.output(y)

    def _step_heads(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, cache: FeatureCache) -> Tensor:
        """The concatenated heads (B, 1, H · d_v) for q (B, H, 1, d_k), k (B, G, 1, d_k) and v (B, G, 1, d_v)."""
        B, G, r = q.shape[0], k.shape[1], q.shape[1] // k.shape[1]
        x = torch.cat([q.reshape(B, G, r, -1), k], dim=2)  # (B, G, r + 1, d_k)
        if self.position is not None:  # queries and key have the same position
            x = self.position.rotate(x, cache.positions(1).expand(B, r + 1))
        gate = None if gate is None else gate.mT
        y = self.take_step(x, v, features=self.features, gate=gate, state=cache.state)
        return y.to(v.dtype).reshape(B, 1, -1)

    def project_source(
        self, key: Tensor, value: Tensor | None = None, *, mask: Mask | Tensor | None = None
    ) -> FeatureState | WholeText:
        """Sum up a text (B, n, width) once for all queries of cross-attention; while recording, keep it whole."""
        if self.gate is not None:
            raise ValueError("a gate lets the past fade, and cross-attention has no past: use gate=False")
        value = key if value is None else value
        check_width("key", key, self.key_dim)
        check_width("value", value, self.value_dim)
        if self._forward_pre_hooks and value is key:
            return WholeText(key)
        k, v = self.input.project_source(key, value)
        return sum_keys(k, v, features=self.features, mask=mask)

    remember = deprecated_name("remember", project_source)

    def query_source(self, query: Tensor, state: FeatureState) -> Tensor:
        """Attend to a text that was summed up, (B, m, dim) -> (B, m, dim).

        Adjacent rows may share a text (beams): then B is a multiple of the number of texts in `state`.
        """
        check_width("query", query, self.dim)
        rows, m = query.shape[:2]
        q = self.input.queries(query.view(len(state), -1, self.dim))
        return self._join(query_state(q, state, features=self.features)).view(rows, m, -1)

    recall = deprecated_name("recall", query_source)

    def new_cache(
        self, batch: int, capacity: int = 0, *, static: bool = False, recorded: bool | None = None
    ) -> FeatureCache:
        """Return an empty cache: of fixed size, for texts of any length.

        `capacity` and `static` are for the keys that it also stores while weights are recorded; `recorded` tells
        whether they are, and by default hooks on this layer do.
        """
        like = next(self.parameters())
        cache = empty_cache(like, batch, self.sizes, self.features)
        if bool(self._forward_pre_hooks) if recorded is None else recorded:
            cache.record_keys(like, self.sizes.d_k, capacity, static=static)
        return cache

    def _project(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        cache: FeatureCache | None,
        state: FeatureState | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """q (B, H, m, d_k), k (B, G, n, d_k), v (B, G, n, d_v) and the gate (B, G, n)."""
        is_self_attention = key is None or key is query
        key = query if key is None else key
        value = key if value is None else value
        for name, x, width in (
            ("query", query, self.dim),
            ("key", key, self.key_dim),
            ("value", value, self.value_dim),
        ):
            check_width(name, x, width)
        q, k, v = self.input(query, key, value)
        if self.position is not None:
            if not is_self_attention:
                raise ValueError("positions inside attention are for self-attention; cross-attention takes none")
            if state is not None:
                raise ValueError("a state does not store the length of its text: with positions, use new_cache()")
            m = query.shape[1]
            i = torch.arange(m, device=q.device) if cache is None else cache.positions(m)
            q, k = self.position.rotate(q, i), self.position.rotate(k, i)
        return q, k, v, None if self.gate is None else self.gate(key).mT

    def _join(self, y: Tensor) -> Tensor:
        y = y.transpose(1, 2).flatten(2)  # Concat(head_1 … head_H)
        return y if self.output is None else self.output(y)


def _is_step(query: Tensor) -> bool:
    """Whether this is one new token whose step may overwrite the state: no gradients, no autocast."""
    single = query.dim() == 3 and query.shape[1] == 1
    return single and not torch.is_grad_enabled() and not torch.is_autocast_enabled(query.device.type)
