"""The queries, keys and values behind a map, as attention compares and mixes them.

D4, D8, D11. They are made once more from what a layer is given, by its own parts; the layer itself is left alone.

    B batch   H heads   G heads of keys and values   m queries   n keys   d width of a head's vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.linear.mixed import Attention, MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name
from regard.attention.scores import AdditiveScore, ConcatScore
from regard.attention.single_head import KeyValueAttention
from regard.decoding.ensemble import Ensemble
from regard.look.trace.from_weights import map_of

LAYERS = Attention | KeyValueAttention


class Vectors(NamedTuple):
    """q (B, H, m, d), k (B, G, n, d) and v (B, G, n, ·)."""

    q: Tensor
    k: Tensor
    v: Tensor


@contextmanager
def record_vectors(model: nn.Module, wanted: bool = True) -> Iterator[dict[str, Vectors]]:
    """Queries, keys and values of each layer inside the block, by the names of regard.record; none if not `wanted`.

    For passes over a whole text, without a cache; of an ensemble it is the first model's.
    """
    model = model.models[0] if isinstance(model, Ensemble) else model
    seen: dict[str, Vectors] = {}
    handles = []
    try:
        for path, module in model.named_modules():
            if wanted and isinstance(module, LAYERS) and module.returns_weights:
                hook = _take(layer_name(path), seen)
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def group_vectors(seen: Mapping[str, Vectors], kind: str) -> dict[str, Any]:
    """Those of one map and the first text, as the q, k and v [L, heads, tokens, d] of a trace's Map."""
    layers = [vectors for name, vectors in seen.items() if map_of(name) == kind]
    return {
        letter: np.stack([getattr(vectors, letter)[0].float().cpu().numpy() for vectors in layers])
        for letter in Vectors._fields
        if layers
    }


def head_vectors(layer: Attention, query: Tensor, key: Tensor, value: Tensor) -> Vectors:
    """What the layer compares: projected, normalised where exact heads do that, and turned by rotary positions."""
    if isinstance(layer, MixedAttention):
        parts = [head_vectors(part, query, key, value) for part in (layer.exact, layer.random)]
        q, k, v = (torch.cat(sides, dim=1) for sides in zip(*parts, strict=True))
        share = q.shape[1] // k.shape[1]  # heads to a key
        groups = [place // share for place in layer.places[::share]]
        return Vectors(q[:, layer.places], k[:, groups], v[:, groups])
    q, k, v = layer.input(query, key, value)
    if isinstance(layer, MultiHeadAttention) and layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    if layer.position is not None:
        i = torch.arange(q.shape[2], device=q.device)
        q, k = layer.position.rotate(q, i), layer.position.rotate(k, i)
    return Vectors(q, k, v)


def state_vectors(layer: KeyValueAttention, query: Tensor, keys: Tensor, value: Tensor) -> Vectors:
    """What a recurrent decoder's score compares; the keys are prepared, so additive queries are projected as well."""
    score = layer.score
    if isinstance(score, AdditiveScore):
        query = score.query(query)
    elif isinstance(score, ConcatScore):
        query = query @ score.stacked.weight[:, : score.query_dim].T
    return Vectors(query[:, None], keys[:, None], value[:, None])


def _take(name: str, seen: dict[str, Vectors]) -> Callable[..., None]:
    """A hook that notes the vectors of a layer; a recurrent net looks once a word, and the queries are joined."""

    @torch.no_grad()
    def take(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        query, *others = args
        key = others[0] if others else query
        value = others[1] if len(others) > 1 else key
        if isinstance(layer, Attention):
            seen[name] = head_vectors(layer, query, key, value)
        elif isinstance(layer, KeyValueAttention):
            found = state_vectors(layer, query, key, value)
            before = [seen[name].q] if name in seen else []
            seen[name] = found._replace(q=torch.cat([*before, found.q], dim=2))

    return take
