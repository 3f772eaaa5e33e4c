"""Multi-head attention by random features: the layer that stands where MultiHeadAttention stands.

Peng et al. 2021, section 3; Vaswani et al. 2017, section 3.2.2; F3.

    B batch   H heads   G key-value heads   m queries   n keys   d_k, d_v head widths
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.attention.cache import KVCache, StaticCache
from regard.attention.linear.cache import FeatureCache, WholeText, seen_weights
from regard.attention.linear.dispatch import attend_features, recall, remember
from regard.attention.linear.feature_maps import FeatureMap
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.state import FeatureState, check_draw, empty_state
from regard.attention.linear.step import take_step
from regard.attention.mask_rules import Mask, as_mask
from regard.attention.projections import HeadSizes, SeparateProjection, StackedProjection
from regard.positions import Position, make_position

FORGOTTEN = (
    "a state has forgotten the single keys: no return_weights with a state or a cache; read the whole text at once"
)


class RandomFeatureAttention(nn.Module):
    """Concat(head_1 … head_H) W^O with heads by `attend_features`: time linear in the length, a state of one size.

    Peng et al. 2021, section 3; F3. The arguments of MultiHeadAttention, and those of RandomFeatures:

        kv_heads   fewer heads for keys and values; W, the learned scale and the gate belong to these
        position   rotary, as a module or by name: it turns queries and keys. Schemes that add to scores cannot be had
        gate       let the past fade by g_t = sigmoid(w_g.x_t + b_g), learned for each head; causal self-attention only
        features, map, draw, normalize, scale, learned_scale, seed, redraw_every   as RandomFeatures has them
        dropout    in training leave out whole keys, each with this probability: there are no single weights

    Biases on scores have no place here, for there are no scores.
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
        gate: bool = False,
        seed: int = 0,
        redraw_every: int = 0,
        bias: bool = True,
        output: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        for name, size in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads), ("d_k", d_k), ("d_v", d_v)):
            if size is not None and size < 1:
                raise ValueError(f"{name} counts from 1, got {size}")
        if dim % heads and (d_k is None or d_v is None):
            raise ValueError(f"dim={dim} does not split into heads={heads} equal parts; give d_k and d_v")
        if heads % kv_heads:
            raise ValueError(f"heads={heads} is not a multiple of kv_heads={kv_heads}: each group of heads shares one")
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout is a share from 0 up to, but not including, 1; got {dropout}")
        self.dropout, self.has_bias = dropout, bias
        self.dim, self.key_dim = dim, dim if key_dim is None else key_dim
        self.value_dim = self.key_dim if value_dim is None else value_dim
        sizes = HeadSizes(heads, kv_heads, d_k or dim // heads, d_v or dim // heads)
        self.sizes, self.position = sizes, _turning(position, dim, sizes)
        dims = (dim, self.key_dim, self.value_dim)
        self.input: StackedProjection | SeparateProjection
        if dims == (dim,) * 3:
            self.input = StackedProjection(dim=dim, sizes=sizes, bias=bias)
        else:
            self.input = SeparateProjection(dims=dims, sizes=sizes, bias=bias)
        self.features = RandomFeatures(
            dim=sizes.d_k, features=features, heads=kv_heads, map=map, draw=draw, normalize=normalize, scale=scale,
            learned_scale=learned_scale, seed=seed, redraw_every=redraw_every,
        )  # fmt: skip
        self.gate = nn.Linear(self.key_dim, kv_heads) if gate else None
        if self.gate is not None:  # heads of short and of long memory at first: they keep 73% to 99.8% at each token
            nn.init.zeros_(self.gate.weight)
            with torch.no_grad():
                self.gate.bias.copy_(torch.linspace(1.0, 6.0, kv_heads))
        self.output = nn.Linear(heads * sizes.d_v, dim, bias=bias) if output else None
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
        these; a `cache` holds such a state, and then the next one. For cross-attention a text is summed up once by
        `project_source` and asked by `recall`; given as `cache=` it stands in for `key` and `value`, as a
        ProjectedSource does in exact attention, and a mask has nothing more to say. Weights need the single keys: with
        a cache, regard.record must have begun before it was made.
        """
        if cache is not None and (state is not None or return_state):
            raise ValueError("a cache holds the state before and after: give either cache= or state= and return_state=")
        if isinstance(cache, WholeText):
            return self._look_at(query, cache, mask, return_weights)
        seen = cache.seen if isinstance(cache, FeatureCache) else None
        if return_weights and (state is not None or return_state or (cache is not None and seen is None)):
            raise ValueError(FORGOTTEN)
        if isinstance(cache, FeatureState):
            return self.recall(query, cache)
        if cache is not None and seen is None and key is None and mask is None and _can_step(query):
            return self._step(query, cache)
        q, k, v, gate = self._project(query, key, value, cache, state)
        if self.training and self.dropout:
            mask = self._drop_keys(k, mask)
        if return_weights and cache is None:
            y, weights = self.attend(
                q, k, v, features=self.features, mask=mask, causal=causal, gate=gate, return_weights=True
            )
            return self._join(y), weights
        if cache is None and not return_state:
            y = self.attend(q, k, v, features=self.features, mask=mask, causal=causal, gate=gate, state=state)
            return self._join(y)
        state = state if cache is None else cache.state
        y, state = self.attend(
            q, k, v, features=self.features, mask=mask, causal=causal, gate=gate, state=state, return_state=True
        )
        if cache is None:
            return self._join(y), state
        cache.advance(state, k.shape[2])
        if seen is None:
            return self._join(y)
        weights = seen_weights(q, k, gate, seen, features=self.features, causal=causal)
        return (self._join(y), weights) if return_weights else self._join(y)

    def _step(self, query: Tensor, cache: FeatureCache) -> Tensor:
        """The next token (B, 1, dim) of each row, as the general way makes it, by fewer operations."""
        self._check("query", query, self.dim)
        check_draw(cache.state, self.features.draw)
        q, k, v = self.input(query, query, query)
        gate = None if self.gate is None else self.gate(query)  # (B, 1, G)
        y = self._step_heads(q, k, v, gate, cache)
        cache.advance(cache.state, 1)
        return y if self.output is None else self.output(y)

    def _step_heads(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, cache: FeatureCache) -> Tensor:
        """(B, 1, H · d_v), the heads side by side."""
        B, G, r = q.shape[0], k.shape[1], q.shape[1] // k.shape[1]
        x = torch.cat([q.reshape(B, G, r, -1), k], dim=2)  # (B, G, r + 1, d_k)
        if self.position is not None:  # all of them stand at one place
            x = self.position.rotate(x, cache.positions(1).expand(B, r + 1))
        past = None if gate is None else gate.mT
        y = self.take_step(x, v, features=self.features, gate=past, state=cache.state)
        return y.to(v.dtype).reshape(B, 1, -1)

    def project_source(
        self, key: Tensor, value: Tensor | None = None, *, mask: Mask | Tensor | None = None
    ) -> FeatureState | WholeText:
        """Sum up a text (B, n, width) once, for the many queries that will look at it; not while somebody records."""
        if self.gate is not None:
            raise ValueError("a gate lets the past fade, and a text that is looked at as a whole has none: gate=False")
        value = key if value is None else value
        self._check("key", key, self.key_dim)
        self._check("value", value, self.value_dim)
        if self._forward_pre_hooks and value is key:
            return WholeText(key)
        k, v = self.input.project_source(key, value)
        return remember(k, v, features=self.features, mask=mask)

    def recall(self, query: Tensor, state: FeatureState) -> Tensor:
        """(B, m, dim) -> (B, m, dim): what queries find in a text that was summed up.

        Rows side by side may ask one text: then there are several times as many rows of queries as of texts.
        """
        self._check("query", query, self.dim)
        rows, m = query.shape[:2]
        y = self._join(recall(self.input.queries(query.view(len(state), -1, self.dim)), state, features=self.features))
        return y.view(rows, m, -1)

    def new_cache(
        self, batch: int, capacity: int = 0, *, static: bool = False, recorded: bool | None = None
    ) -> FeatureCache:
        """An empty cache. It takes texts of any length and its shapes are fixed, whatever `capacity` and `static`.

        These are for the keys beside it while somebody records: `recorded`, by default as hooks on this layer tell.
        """
        if self.features.each:
            raise ValueError("a cache is for causal attention, and map 'rows' is not: take another map")
        like = next(self.parameters())
        v = like.new_zeros(batch, self.sizes.kv_heads, 0, self.sizes.d_v)
        v = v if like.dtype == torch.float64 else v.float()
        lengths = torch.zeros(batch, dtype=torch.long, device=like.device)
        seen: KVCache | StaticCache | None = None
        if self._forward_pre_hooks if recorded is None else recorded:
            keys, gates = (like.new_zeros(batch, v.shape[1], capacity, width) for width in (self.sizes.d_k, 1))
            seen = StaticCache(keys, gates, lengths.clone()) if static else KVCache(keys, gates)
        state = replace(empty_state(v, self.features.features), draw=self.features.draw)
        return FeatureCache(state, lengths, seen)

    def _project(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        cache: FeatureCache | None,
        state: FeatureState | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """q (B, H, m, d_k), k (B, G, n, d_k), v (B, G, n, d_v) and the gate (B, G, n)."""
        own = key is None or key is query
        key = query if key is None else key
        value = key if value is None else value
        self._check("query", query, self.dim)
        self._check("key", key, self.key_dim)
        self._check("value", value, self.value_dim)
        q, k, v = self.input(query, key, value)
        if self.position is not None:
            if not own:
                raise ValueError("positions inside attention are for self-attention; cross-attention takes none")
            if state is not None:
                raise ValueError("a state does not say where its text ends: with positions give a cache= (new_cache)")
            m = query.shape[1]
            i = torch.arange(m, device=q.device) if cache is None else cache.positions(m)
            q, k = self.position.rotate(q, i), self.position.rotate(k, i)
        return q, k, v, None if self.gate is None else self.gate(key).mT

    def _look_at(
        self, query: Tensor, text: WholeText, mask: Mask | Tensor | None, return_weights: bool
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Cross-attention to a text that was not summed up; rows side by side may look at one text."""
        times = len(query) // len(text.states)
        key = text.states.repeat_interleave(times, dim=0)
        if isinstance(mask, Tensor):
            mask = mask.repeat_interleave(times, dim=0)
        return self.forward(query, key, mask=mask, return_weights=return_weights)  # type: ignore[return-value]

    def _drop_keys(self, k: Tensor, mask: Mask | Tensor | None) -> Mask | Tensor:
        """The mask without the keys that this step of training leaves out, others for each head of its own."""
        heads = k.shape[1] if k.shape[1] == self.sizes.heads else 1
        kept = torch.rand(k.shape[0], heads, 1, k.shape[2], device=k.device) >= self.dropout
        return kept if mask is None else as_mask(mask) & kept

    def _join(self, y: Tensor) -> Tensor:
        y = y.transpose(1, 2).flatten(2)  # Concat(head_1 … head_H)
        return y if self.output is None else self.output(y)

    @staticmethod
    def _check(name: str, x: Tensor, width: int) -> None:
        if x.dim() != 3 or x.shape[2] != width:
            raise ValueError(f"{name} must be (B, length, {width}), got {tuple(x.shape)}")


def _can_step(query: Tensor) -> bool:
    """Whether the state may be written over: one token, and nobody wants gradients or half precision inside."""
    one = query.dim() == 3 and query.shape[1] == 1
    return one and not torch.is_grad_enabled() and not torch.is_autocast_enabled(query.device.type)


def _turning(position: Position | str | None, dim: int, sizes: HeadSizes) -> Position | None:
    """The scheme as a module, if all that it does is to turn queries and keys: of scores there are none to add to."""
    if position is None or position == "none":
        return None
    if isinstance(position, str):
        position = make_position(position, dim=dim, heads=sizes.heads, head_dim=sizes.d_k, value_dim=sizes.d_v)
    kind = type(position)
    if kind.rotate is Position.rotate or kind.bias is not Position.bias or kind.mix is not Position.mix:
        raise ValueError(
            f"position {kind.__name__} does not turn queries and keys, which is all that random features allow inside "
            "attention: rotary, or a scheme that acts on the embeddings, outside of this layer"
        )
    return position
