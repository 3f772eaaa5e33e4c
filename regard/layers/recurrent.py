"""Recurrent layers over whole sequences: RNN, GRU and LSTM, written out as one loop over time.

Elman 1990, Cho et al. 2014, Hochreiter & Schmidhuber 1997; C1.

Options, parameters and state dicts are those of PyTorch. `backend` "torch" runs PyTorch's implementation, "reference"
the loop below, and "auto" PyTorch's wherever it supports the call. The classes build on torch's RNNBase, not on its
RNN, GRU and LSTM, because torch.compile does not trace those, and a decoder's step has to compile as a whole.

Shapes: B batch, T time, D input width, H hidden width, P width of an output h (H, or the projection's),
        L layers, R directions (1 or 2). Inside, time comes first: (T, B, ·).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.layers.cells import (
    Backend,
    Weights,
    check_backend,
    check_pair,
    gru_step,
    lstm_step,
    rnn_step,
)
from regard.layers.checks import check_like
from regard.machine import cpu_autocasts_lstm

State = tuple[Tensor, ...]  # (h,) or, for the LSTM, (h, c)
S = TypeVar("S", Tensor, tuple[Tensor, Tensor])
Step = Callable[[Tensor, State, Weights, Tensor | None], tuple[Tensor, State]]


class RNN(nn.RNNBase):
    """The plain recurrent net; options and parameters are those of torch.nn.RNN.

    Elman 1990; C1.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity must be 'tanh' or 'relu'; got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        super().__init__(
            "RNN_TANH" if nonlinearity == "tanh" else "RNN_RELU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"RNN"}) | _options(self)

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        backend: Backend = "auto",
    ) -> tuple[Tensor, Tensor]:
        """x (T, B, D), (B, T, D) with batch_first, or (T, D) -> outputs, and the last state (L·R, B, H).

        With `lengths` (B,) padding is not read: outputs there are zero, the last state is that of the last real token,
        and the backward direction starts there.
        """
        start = None if state is None else (state,)
        if _kernels_run(self, x, start, lengths, backend):
            return _packed(self, nn.RNN.forward, x, state, lengths)

        y, (h,) = _written_out(self, self.step, x, start, lengths)
        return y, h

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, D) -> the output (B, H) and the next state; rows of padding, not `real` (B, 1), keep their state."""
        (h,) = state
        return _passed(real, (rnn_step(x, h, weights, self.nonlinearity),), state)


class GRU(nn.RNNBase):
    """Gated recurrent units; options and parameters are those of torch.nn.GRU.

    Cho et al. 2014; C1.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"GRU"}) | _options(self)

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        backend: Backend = "auto",
    ) -> tuple[Tensor, Tensor]:
        """x (T, B, D), (B, T, D) with batch_first, or (T, D) -> outputs, and the last state (L·R, B, H).

        With `lengths` (B,) padding is not read: see RNN.
        """
        start = None if state is None else (state,)
        if _kernels_run(self, x, start, lengths, backend):
            return _packed(self, nn.GRU.forward, x, state, lengths)

        y, (h,) = _written_out(self, self.step, x, start, lengths)
        return y, h

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """As RNN.step."""
        (h,) = state
        return _passed(real, (gru_step(x, h, weights),), state)


class LSTM(nn.RNNBase):
    """Long short-term memory; options and parameters, the projection too, are those of torch.nn.LSTM.

    Hochreiter & Schmidhuber 1997; C1.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device=device,
            dtype=dtype,
        )

    # Where torch's LSTM differs from its base.
    check_forward_args = nn.LSTM.check_forward_args  # type: ignore[assignment]
    get_expected_cell_size = nn.LSTM.get_expected_cell_size
    permute_hidden = nn.LSTM.permute_hidden  # type: ignore[assignment]

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"LSTM"}) | _options(self)

    def forward(
        self,
        x: Tensor,
        state: tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Tensor | None = None,
        backend: Backend = "auto",
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (T, B, D), (B, T, D) with batch_first, or (T, D) -> outputs, and the last h (L·R, B, P), c (L·R, B, H).

        With `lengths` (B,) padding is not read: see RNN.
        """
        check_pair(state)
        if _kernels_run(self, x, state, lengths, backend):
            return _packed(self, nn.LSTM.forward, x, state, lengths)

        y, (h, c) = _written_out(self, self.step, x, state, lengths)
        return y, (h, c)

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """As RNN.step."""
        h, c = state
        return _passed(real, lstm_step(x, h, c, weights), state)


def _options(layer: nn.RNNBase) -> set[str]:
    """The traits of the options in use; see regard.traits."""
    options = {
        "bidirectional": layer.bidirectional,
        "relu-recurrence": layer.mode == "RNN_RELU",
        "projected-state": layer.proj_size > 0,
        "recurrent-no-bias": not layer.bias,
    }
    return {name for name, used in options.items() if used}


def _written_out(
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
        start = tuple(x.new_zeros(layers, x.shape[1], width) for layers, width in _state_sizes(layer))

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
            y, end = _unroll(step, x, first, _layer_weights(layer, f"l{depth}{suffix}"), real, bool(suffix))
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


def _passed(real: Tensor | None, new: State, state: State) -> tuple[Tensor, State]:
    """Return the output and the state after a step; for padding 0 and the state before it."""
    if real is None:
        return new[0], new
    following = tuple(torch.where(real, after, before) for after, before in zip(new, state, strict=True))
    return torch.where(real, new[0], 0), following


def _packed(
    layer: nn.RNNBase, kernels: Callable[..., tuple[Any, S]], x: Tensor, state: S | None, lengths: Tensor | None
) -> tuple[Tensor, S]:
    """Run PyTorch's implementation, which stays outside of compiled graphs."""
    # Imported here because it loads PyTorch's compiler, which takes two seconds, also for Transformers.
    from regard.layers.packed_sequences import run_packed

    return run_packed(layer, kernels, x, state, lengths)


def _kernels_run(layer: nn.RNNBase, x: Tensor, start: State | None, lengths: Tensor | None, backend: str) -> bool:
    """Check the arguments, and return whether PyTorch's implementation runs (otherwise the loop does)."""
    check_backend(backend)
    _check_input(layer, x, start)
    if lengths is not None:
        _check_lengths(layer, x, lengths)
    if backend == "reference":
        return False
    obstacle = kernel_obstacle(layer, x, lengths)
    if obstacle is not None and backend == "torch":
        raise ValueError(f"backend='torch' does not fit: {obstacle}; use 'auto' or 'reference'")
    return obstacle is None


def kernel_obstacle(layer: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> str | None:
    """Return the reason why PyTorch's implementation does not support the call, or None if it does.

    This function cannot see torch.func.vmap and forward-mode derivatives: use backend="reference" there.
    """
    if lengths is not None and lengths.numel() == 0:
        return "torch does not pack an empty batch"
    if x.device.type == "mps" and layer.proj_size > 0:
        return "torch has no LSTM projection on MPS"
    if x.device.type == "cpu" and layer.mode == "LSTM" and torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        if not cpu_autocasts_lstm(dtype):
            return f"torch's LSTM does not run under autocast to {dtype} on this CPU"
    cudnn = x.device.type == "cuda" and torch.backends.cudnn.enabled
    if cudnn and not layer.training and torch.is_grad_enabled():
        return "cuDNN has no gradient in eval mode, and torch.no_grad() is off"
    return None


def _state_sizes(layer: nn.RNNBase) -> list[tuple[int, int]]:
    """Return the rows L·R and the width of each part of the state: h alone, or h and c of an LSTM."""
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    h = (rows, layer.proj_size or layer.hidden_size)
    return [h, (rows, layer.hidden_size)] if layer.mode == "LSTM" else [h]


def _layer_weights(layer: nn.RNNBase, suffix: str) -> Weights:
    return Weights(
        W_ih=getattr(layer, f"weight_ih_{suffix}"),
        W_hh=getattr(layer, f"weight_hh_{suffix}"),
        b_ih=getattr(layer, f"bias_ih_{suffix}", None),
        b_hh=getattr(layer, f"bias_hh_{suffix}", None),
        W_hr=getattr(layer, f"weight_hr_{suffix}", None),
    )


def _check_input(layer: nn.RNNBase, x: Tensor, start: State | None) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, padded, with lengths= beside it, got {type(x).__name__}")
    if x.dim() not in (2, 3) or x.shape[-1] != layer.input_size:
        batch = "batch, time" if layer.batch_first else "time, batch"
        raise ValueError(
            f"x must be ({batch}, {layer.input_size}) or (time, {layer.input_size}), "
            f"since input_size is {layer.input_size}, got {tuple(x.shape)}"
        )
    if x.shape[_time_dim(layer, x)] == 0:
        raise ValueError(f"x must have at least one time step, got {tuple(x.shape)}")
    weight = next(layer.parameters())
    check_like("x", x, weight)
    batch_shape = () if x.dim() == 2 else (x.shape[1 - _time_dim(layer, x)],)
    for part, (rows, width) in zip(start or (), _state_sizes(layer), strict=False):
        expected = (rows, *batch_shape, width)
        if part.shape != expected:
            raise ValueError(f"state must be {expected} for x {tuple(x.shape)}, got {tuple(part.shape)}")
        check_like("state", part, weight)


def _check_lengths(layer: nn.RNNBase, x: Tensor, lengths: Tensor) -> None:
    if x.dim() == 2:
        raise ValueError(f"lengths belong to a batch; x is one sequence {tuple(x.shape)}")
    time = x.shape[_time_dim(layer, x)]
    batch = x.shape[1 - _time_dim(layer, x)]
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise TypeError(f"lengths must be whole numbers (torch.long), got {lengths.dtype}")
    if lengths.shape != (batch,):
        raise ValueError(f"lengths must be ({batch},), one for each sequence, got {tuple(lengths.shape)}")
    if batch == 0 or lengths.is_cuda:  # reading them would synchronize with the GPU
        return
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest < 1 or longest > time:
        raise ValueError(f"lengths must lie in 1..{time}, the time steps of x, got {shortest}..{longest}")


def _time_dim(layer: nn.RNNBase, x: Tensor) -> int:
    return 1 if layer.batch_first and x.dim() == 3 else 0
