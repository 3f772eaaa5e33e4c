"""A recurrent net over a whole sequence, written out as one loop over time: y_t = F(x_t, h_{t-1}).

Elman 1990; C1.

Shapes: B batch, T time, D input width, H hidden width, P width of an output h (H, or the projection's),
        L layers, R directions (1 or 2). Inside, time comes first: (T, B, ·).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.cells import Weights

State = tuple[Tensor, ...]  # (h,) or, for the LSTM, (h, c)
Step = Callable[[Tensor, State, Weights, Tensor | None], tuple[Tensor, State]]


def run_loop(
    layer: nn.RNNBase, step: Step, x: Tensor, start: State | None, lengths: Tensor | None
) -> tuple[Tensor, State]:
    """Run the layers in order, each in one or both directions, with dropout between them and not after the last."""
    batched = x.dim() == 3
    if not batched:
        x = x.unsqueeze(1)  # (T, 1, D)
        start = None if start is None else tuple(part.unsqueeze(1) for part in start)
    elif layer.batch_first:
        x = x.transpose(0, 1)  # (T, B, D)
    if start is None:
        start = tuple(x.new_zeros(layers, x.shape[1], width) for layers, width in state_sizes(layer))

    real = None
    if lengths is not None:
        real = torch.arange(len(x), device=x.device)[:, None, None] < lengths.to(x.device)[:, None]  # (T, B, 1)
        x = torch.where(real, x, 0)  # nothing in the padding, not even NaN, may reach a gradient

    ends: list[State] = []
    for depth in range(layer.num_layers):
        if depth > 0:
            x = F.dropout(x, layer.dropout, layer.training)
        outputs = []
        for suffix in ("", "_reverse") if layer.bidirectional else ("",):
            first = tuple(part[len(ends)] for part in start)  # (B, ·)
            y, end = _unroll(step, x, first, layer_weights(layer, f"l{depth}{suffix}"), real, bool(suffix))
            outputs.append(y)
            ends.append(end)
        x = torch.cat(outputs, dim=-1)  # (T, B, R·P)

    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))  # (L·R, B, ·)
    if not batched:
        return x.squeeze(1), tuple(part.squeeze(1) for part in last)
    return (x.transpose(0, 1) if layer.batch_first else x), last


def _unroll(
    step: Step, x: Tensor, state: State, weights: Weights, real: Tensor | None, backwards: bool
) -> tuple[Tensor, State]:
    """Loop over time, one layer in one direction: y_t = F(x_t, h_{t-1}).

    A padded step does not change the state, so the backward loop, which reads the padding first, still has its initial
    state at the last real token.
    """
    y: list[Tensor] = []
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        output, state = step(x[t], state, weights, None if real is None else real[t])
        y.append(output)
    return torch.stack(y[::-1] if backwards else y), state  # (T, B, P)


def hold_in_padding(real: Tensor | None, new: State, state: State) -> tuple[Tensor, State]:
    """Return the output and the state after a step; for padding 0 and the state before it."""
    if real is None:
        return new[0], new
    following = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
    return torch.where(real, new[0], 0), following


def state_sizes(layer: nn.RNNBase) -> list[tuple[int, int]]:
    """Return the rows L·R and the width of each part of the state: h alone, or h and c of an LSTM."""
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    h = (rows, layer.proj_size or layer.hidden_size)
    return [h, (rows, layer.hidden_size)] if layer.mode == "LSTM" else [h]


def layer_weights(layer: nn.RNNBase, suffix: str) -> Weights:
    """Return the parameters of one layer in one direction, by the end of torch's names: "l0", "l0_reverse", "l1"."""
    return Weights(
        W_ih=getattr(layer, f"weight_ih_{suffix}"),
        W_hh=getattr(layer, f"weight_hh_{suffix}"),
        b_ih=getattr(layer, f"bias_ih_{suffix}", None),
        b_hh=getattr(layer, f"bias_hh_{suffix}", None),
        W_hr=getattr(layer, f"weight_hr_{suffix}", None),
    )
