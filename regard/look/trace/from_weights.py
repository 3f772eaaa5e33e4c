"""From recorded weights to a trace: those of regard.record, or of any model that gives its weights away.

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
from regard.look.trace.trace import MAPS, Axis, Map, Model, Token, Trace, unit_rows


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
    """The trace of weights by the names of their layers, (B, H, m, n) each, of which one `row` of the batch is taken.

        with regard.record(model) as layers:
            model(source, target)
        trace = trace_maps(layers, source=source_tokens, target=target_tokens)

    The names say what is what (`map_of`). `source` has the tokens that an encoder reads, `target` the queries of
    a decoder, and `read` its keys where those differ: START and all but the last token of the target, say. Padding, as
    tokens of an Axis, is taken for masked, and a decoder that never looks ahead for causal.
    """
    axes = {
        which: given if isinstance(given, Axis) else Axis(tuple(map(Token, given)))
        for which, given in (("source", source), ("target", target), ("read", read))
        if len(given)
    }
    maps = {}
    for kind, weights in group_layers({layer: _one_text(layer, each, row) for layer, each in layers.items()}).items():
        own = {"enc_self": ("source", "source"), "dec_self": ("target", "read" if "read" in axes else "target")}
        query, key = own.get(kind, ("target", "source"))
        if missing := [axis for axis in (query, key) if axis not in axes]:
            raise UsageError(f"the weights are {kind}: give {missing[0]}=, the tokens that they belong to")
        maps[kind] = Map(query, key, weights, _mask(weights, axes[key], kind), random_features)
    if not maps:
        raise UsageError("no weights were recorded: has the model run, and does it have attention?")
    stacks = {stack: len(maps[kind].weights) for kind, stack in MAPS.items() if stack is not None and kind in maps}
    heads = next(iter(maps.values())).weights.shape[1]
    return Trace(Model(name, "recorded", stacks, heads, {}), axes, maps)


def group_layers(layers: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Numbers (H, m, n) by the name of their layer -> arrays [L, H, m, n] by the name of their map."""
    grouped: dict[str, list[NDArray[Any]]] = {}
    for name, weights in layers.items():
        kind = map_of(name)
        numbers = weights.detach().cpu()
        rough = numbers.dtype in (torch.float16, torch.bfloat16)  # rows sum to one no better than such numbers can
        plain: NDArray[Any] = numbers.float().numpy()
        grouped.setdefault(kind, []).append(unit_rows(plain) if rough else plain)
    for kind, each in grouped.items():
        if len(shapes := {one.shape for one in each}) > 1:
            raise DataError(f"the layers of {kind} must have weights of one shape, got {sorted(shapes)}")
    return {kind: np.stack(each) for kind, each in grouped.items()}


def map_of(layer: str) -> str:
    """The map that a layer belongs to, enc_self, dec_self, cross or rnn, by the name that regard.record gives it.

    What ends in cross looks at the source, and without a block's number it is a recurrent net's; what begins with
    decoder looks at the text itself; all others are an encoder's.
    """
    parts = layer.split(".")
    if parts[-1] == "cross":
        return "cross" if any(map(str.isdigit, parts)) else "rnn"
    return "dec_self" if parts[0] == "decoder" else "enc_self"


def causal_mask(m: int, n: int) -> NDArray[np.bool_]:
    """[m, n]: no query sees what comes after it, and the last one sees every key."""
    return np.tri(m, n, n - m, dtype=bool)


def _one_text(layer: str, weights: Tensor, row: int) -> Tensor:
    if weights.dim() != 4:
        raise UsageError(f"the weights of {layer!r} must be (B, H, m, n), got {tuple(weights.shape)}")
    if not 0 <= row < len(weights):
        raise UsageError(f"row must be a place in the batch, 0 to {len(weights) - 1}, got {row}")
    return weights[row]


def _mask(weights: NDArray[Any], keys: Axis, kind: str) -> NDArray[np.bool_] | None:
    m, n = weights.shape[2:]
    mask = np.tile(np.array([not token.pad for token in keys.tokens]), (m, 1))
    if mask.shape != (m, n):
        return None  # the trace says what does not fit
    if kind == "dec_self" and m <= n and not weights[:, :, ~causal_mask(m, n)].any():
        mask &= causal_mask(m, n)
    return None if mask.all() else mask
