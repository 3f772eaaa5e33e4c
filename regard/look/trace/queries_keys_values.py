"""The queries, keys and values of a map, as attention uses them.

D4, D8, D11. They are computed again from the input of a layer with the layer's own modules; the layer is not changed.

    B batch   H heads   G heads of keys and values   m queries   n keys   d width of a head's vector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.recording.recorder import layer_name
from regard.attention.scores import AdditiveScore, ConcatScore
from regard.attention.single_head import KeyValueAttention
from regard.attention.types import Attention
from regard.decoding.ensemble import Ensemble
from regard.look.trace.from_weights import map_of

LAYERS = Attention | KeyValueAttention


class Vectors(NamedTuple):
    """q (B, H, m, d), k (B, G, n, d) and v (B, G, n, ·)."""

    q: Tensor
    k: Tensor
    v: Tensor


@contextmanager
def record_vectors(model: nn.Module, enabled: bool = True) -> Iterator[dict[str, Vectors]]:
    """Record the queries, keys and values of each layer, by the names of regard.record; nothing unless `enabled`.

    This is for passes over a whole text, without a cache. Of an ensemble, the first model is recorded.
    """
    model = model.models[0] if isinstance(model, Ensemble) else model
    recorded: dict[str, Vectors] = {}
    handles = []
    try:
        for path, module in model.named_modules():
            if enabled and isinstance(module, LAYERS) and module.returns_weights:
                hook = _recording_hook(layer_name(path), recorded)
                handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def group_vectors(recorded: Mapping[str, Vectors], kind: str) -> dict[str, Any]:
    """Return the vectors of one map, for the first text, as q, k and v [L, heads, tokens, d] of a Map."""
    layers = [vectors for name, vectors in recorded.items() if map_of(name) == kind]
    return {
        letter: np.stack([getattr(vectors, letter)[0].float().cpu().numpy() for vectors in layers])
        for letter in Vectors._fields
        if layers
    }


def head_vectors(layer: Attention, query: Tensor, key: Tensor, value: Tensor) -> Vectors:
    """Return the vectors of a layer: projected, normalised if the layer does so, and rotated by rotary positions."""
    if isinstance(layer, MixedAttention):
        parts = [head_vectors(part, query, key, value) for part in (layer.exact, layer.random)]
        q, k, v = (torch.cat(sides, dim=1) for sides in zip(*parts, strict=True))
        share = q.shape[1] // k.shape[1]  # query heads per key head
        groups = [index // share for index in layer.places[::share]]
        return Vectors(q[:, layer.places], k[:, groups], v[:, groups])
    q, k, v = layer.input(query, key, value)
    if isinstance(layer, MultiHeadAttention) and layer.q_norm is not None and layer.k_norm is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    if layer.position is not None:
        i = torch.arange(q.shape[2], device=q.device)
        q, k = layer.position.rotate(q, i), layer.position.rotate(k, i)
    return Vectors(q, k, v)


def state_vectors(layer: KeyValueAttention, query: Tensor, keys: Tensor, value: Tensor) -> Vectors:
    """Return the vectors that the score of a recurrent decoder uses; keys are projected already, queries are here."""
    score = layer.score
    if isinstance(score, AdditiveScore):
        query = score.query(query)
    elif isinstance(score, ConcatScore):
        query = query @ score.stacked.weight[:, : score.query_dim].T
    return Vectors(query[:, None], keys[:, None], value[:, None])


def _recording_hook(name: str, recorded: dict[str, Vectors]) -> Callable[..., None]:
    """Return a hook that records the vectors of a layer and joins the queries of a recurrent decoder, one per step."""

    @torch.no_grad()
    def hook(layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
        query, *others = args
        key = others[0] if others else query
        value = others[1] if len(others) > 1 else key
        if isinstance(layer, Attention):
            recorded[name] = head_vectors(layer, query, key, value)
        elif isinstance(layer, KeyValueAttention):
            vectors = state_vectors(layer, query, key, value)
            earlier = [recorded[name].q] if name in recorded else []
            recorded[name] = vectors._replace(q=torch.cat([*earlier, vectors.q], dim=2))

    return hook
