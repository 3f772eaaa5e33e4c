"""Recurrent layers over whole sequences: RNN, GRU and LSTM.

Elman 1990, Cho et al. 2014, Hochreiter & Schmidhuber 1997; C1.

Options, parameters and state dicts are those of PyTorch. `backend` "torch" runs PyTorch's implementation, "reference"
the loop of time_loop.py, and "auto" PyTorch's wherever it supports the call. The classes build on torch's RNNBase, not
on its RNN, GRU and LSTM, because torch.compile does not trace those, and a decoder's step has to compile as a whole.

Shapes: B batch, T time, D input width, H hidden width, P width of an output h (H, or the projection's),
        L layers, R directions (1 or 2). Inside, time comes first: (T, B, ·).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
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
from regard.layers.recurrent_checks import check_input, check_lengths, kernel_obstacle
from regard.layers.time_loop import State, hold_in_padding, run_loop

S = TypeVar("S", Tensor, tuple[Tensor, Tensor])


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

        y, (h,) = run_loop(self, self.step, x, start, lengths)
        return y, h

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """x (B, D) -> the output (B, H) and the next state; rows of padding, not `real` (B, 1), keep their state."""
        (h,) = state
        return hold_in_padding(real, (rnn_step(x, h, weights, self.nonlinearity),), state)


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

        y, (h,) = run_loop(self, self.step, x, start, lengths)
        return y, h

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """As RNN.step."""
        (h,) = state
        return hold_in_padding(real, (gru_step(x, h, weights),), state)


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

        y, (h, c) = run_loop(self, self.step, x, state, lengths)
        return y, (h, c)

    def step(self, x: Tensor, state: State, weights: Weights, real: Tensor | None = None) -> tuple[Tensor, State]:
        """As RNN.step."""
        h, c = state
        return hold_in_padding(real, lstm_step(x, h, c, weights), state)


def _options(layer: nn.RNNBase) -> set[str]:
    """The traits of the options in use; see regard.traits."""
    options = {
        "bidirectional": layer.bidirectional,
        "relu-recurrence": layer.mode == "RNN_RELU",
        "projected-state": layer.proj_size > 0,
        "recurrent-no-bias": not layer.bias,
    }
    return {name for name, used in options.items() if used}


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
    check_input(layer, x, start)
    if lengths is not None:
        check_lengths(layer, x, lengths)
    if backend == "reference":
        return False
    obstacle = kernel_obstacle(layer, x, lengths)
    if obstacle is not None and backend == "torch":
        raise ValueError(f"backend='torch' does not fit: {obstacle}; use 'auto' or 'reference'")
    return obstacle is None
