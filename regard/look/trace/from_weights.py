"""Make a trace from attention weights: those of regard.record, or of any other model.

H4.

    B batch   L layers   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.look.trace.attention_map import Map, unit_rows
from regard.look.trace.trace import MAPS, Axis, Model, Token, Trace


def trace_maps(
    layers: Mapping[str, Tensor],
    *,
    source: Axis | Sequence[str] = (),
    target: Axis | Sequence[str] = (),
    read: Axis | Sequence[str] = (),
    row: int = 0,
    name: str = "model",
    random_features: bool = False,
) -> Trace:
    """Make a trace from the weights (B, H, m, n) of named layers, for one `row` of the batch.

        with regard.record(model) as layers:
            model(source, target)
        trace = trace_maps(layers, source=source_tokens, target=target_tokens)

    The name of a layer decides which map it belongs to (`map_of`). `source` has the tokens of the encoder, `target` the
    queries of the decoder, and `read` its keys if they differ, for example START and all but the last target token.
    Padding tokens of an Axis count as masked, and a decoder without weights on later tokens as causal.
    """
    axes = {
        name: tokens if isinstance(tokens, Axis) else Axis(tuple(map(Token, tokens)))
        for name, tokens in (("source", source), ("target", target), ("read", read))
        if len(tokens)
    }
    maps = {}
    for kind, weights in group_layers({layer: _one_text(layer, each, row) for layer, each in layers.items()}).items():
        self_axes = {"enc_self": ("source", "source"), "dec_self": ("target", "read" if "read" in axes else "target")}
        query, key = self_axes.get(kind, ("target", "source"))
        if missing := [axis for axis in (query, key) if axis not in axes]:
            raise UsageError(f"the weights of {kind} need their tokens: pass {missing[0]}=…")
        maps[kind] = Map(query, key, weights, _mask(weights, axes[key], kind), random_features)
    if not maps:
        raise UsageError("no weights were recorded: check that the model has run and that it has attention")
    stacks = {stack: len(maps[kind].weights) for kind, stack in MAPS.items() if stack is not None and kind in maps}
    heads = next(iter(maps.values())).weights.shape[1]
    return Trace(Model(name, "recorded", stacks, heads, {}), axes, maps)


def group_layers(layers: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Stack the weights (H, m, n) of named layers into arrays [L, H, m, n] by map."""
    grouped: dict[str, list[NDArray[Any]]] = {}
    for name, weights in layers.items():
        kind = map_of(name)
        numbers = weights.detach().cpu()
        rounded = numbers.dtype in (torch.float16, torch.bfloat16)  # their rows sum to one only roughly
        plain: NDArray[Any] = numbers.float().numpy()
        grouped.setdefault(kind, []).append(unit_rows(plain) if rounded else plain)
    for kind, arrays in grouped.items():
        if len(shapes := {weights.shape for weights in arrays}) > 1:
            raise DataError(f"the layers of {kind} must have weights of one shape, got {sorted(shapes)}")
    return {kind: np.stack(arrays) for kind, arrays in grouped.items()}


def map_of(layer: str) -> str:
    """Return the map that a layer belongs to, by its name in regard.record: enc_self, dec_self, cross, rnn or pointer.

    A name that ends in cross attends to the source; without the number of a block it belongs to a recurrent decoder. A
    name that starts with decoder is self-attention of the decoder. All others belong to an encoder.
    """
    parts = layer.split(".")
    if parts[-1] == "pointer":
        return "pointer"
    if parts[-1] == "cross":
        return "cross" if any(map(str.isdigit, parts)) else "rnn"
    return "dec_self" if parts[0] == "decoder" else "enc_self"


def causal_mask(m: int, n: int) -> NDArray[np.bool_]:
    """Return the mask [m, n] in which no query attends to a later key, and the last query attends to all."""
    return np.tri(m, n, n - m, dtype=bool)


def _one_text(layer: str, weights: Tensor, row: int) -> Tensor:
    if weights.dim() != 4:
        raise UsageError(f"the weights of {layer!r} must be (B, H, m, n), got {tuple(weights.shape)}")
    if not 0 <= row < len(weights):
        raise UsageError(f"row must be an index of the batch, 0 to {len(weights) - 1}, got {row}")
    return weights[row]


def _mask(weights: NDArray[Any], keys: Axis, kind: str) -> NDArray[np.bool_] | None:
    m, n = weights.shape[2:]
    mask = np.tile(np.array([not token.pad for token in keys.tokens]), (m, 1))
    if mask.shape != (m, n):
        return None  # Trace raises the error
    if kind == "dec_self" and m <= n and not weights[:, :, ~causal_mask(m, n)].any():
        mask &= causal_mask(m, n)
    return None if mask.all() else mask
