"""One step of a recurrent net, y_t = F(x_t, h_{t-1}), written out: RNN, GRU and LSTM, and their cell modules.

Elman 1990, Cho et al. 2014, Hochreiter & Schmidhuber 1997; C1.

Shapes: B batch, D input width, H hidden width, P width of the output h (H, or the projection's),
        G gates stacked in one matrix (RNN 1, GRU 3, LSTM 4). The steps take any leading dimensions.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import unknown_name
from regard.layers.checks import check_like

Backend = Literal["auto", "torch", "reference"]
BACKENDS = get_args(Backend)


class Weights(NamedTuple):
    """The parameters of one layer in one direction, laid out and stacked as torch's.

    The two bias vectors only ever act as their sum, except in the GRU; C1 has both.
    """

    W_ih: Tensor  # (G·H, D) from the input
    W_hh: Tensor  # (G·H, P) from the state before
    b_ih: Tensor | None = None  # (G·H,)
    b_hh: Tensor | None = None  # (G·H,)
    W_hr: Tensor | None = None  # (P, H), the LSTM's projection


def rnn_step(x: Tensor, h: Tensor, weights: Weights, nonlinearity: str = "tanh") -> Tensor:
    """One step of the plain recurrent net: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or ReLU in place of tanh.

    Elman 1990; C1.
    """
    W_ih, W_hh, b_ih, b_hh, _ = weights
    a = F.linear(x, W_ih, b_ih) + F.linear(h, W_hh, b_hh)  # (B, H)
    return torch.tanh(a) if nonlinearity == "tanh" else torch.relu(a)


def gru_gates(x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Return the reset gate r, the update gate z and the new content n of a GRU step; see `gru_step`."""
    W_ih, W_hh, b_ih, b_hh, _ = weights
    x_r, x_z, x_n = F.linear(x, W_ih, b_ih).chunk(3, dim=-1)  # (B, H) each
    h_r, h_z, h_n = F.linear(h, W_hh, b_hh).chunk(3, dim=-1)
    r = torch.sigmoid(x_r + h_r)
    z = torch.sigmoid(x_z + h_z)
    return r, z, torch.tanh(x_n + r * h_n)


def gru_step(x: Tensor, h: Tensor, weights: Weights) -> Tensor:
    """One step of the gated recurrent unit; the matrices are stacked in the order r, z, n.

    Cho et al. 2014, equations 5 to 8; C1.
        r  = sigmoid(W_ir x + b_ir + W_hr h + b_hr)          reset gate
        z  = sigmoid(W_iz x + b_iz + W_hz h + b_hz)          update gate
        n  = tanh(W_in x + b_in + r * (W_hn h + b_hn))       new content
        h' = (1 - z) * n + z * h
    The paper resets h before the product, W_hn (r * h); torch and cuDNN reset after it, and so do we.
    """
    _, z, n = gru_gates(x, h, weights)
    return (1 - z) * n + z * h


def lstm_gates(x: Tensor, h: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gates i and f, the new content g and the gate o of an LSTM step; see `lstm_step`."""
    W_ih, W_hh, b_ih, b_hh, _ = weights
    gates = F.linear(x, W_ih, b_ih) + F.linear(h, W_hh, b_hh)  # (B, 4·H)
    i, f, g, o = gates.chunk(4, dim=-1)  # (B, H) each
    return torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)


def lstm_step(x: Tensor, h: Tensor, c: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """One step of long short-term memory; the matrices are stacked in the order i, f, g, o.

    Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; C1.
        i  = sigmoid(W_ii x + b_ii + W_hi h + b_hi)          update (input) gate
        f  = sigmoid(W_if x + b_if + W_hf h + b_hf)          forget gate
        g  = tanh(W_ig x + b_ig + W_hg h + b_hg)             new content
        o  = sigmoid(W_io x + b_io + W_ho h + b_ho)          output gate
        c' = f * c + i * g                                   a sum: this is where gradients survive (C3)
        h' = o * tanh(c')                                    then W_hr h', with a projection (Sak et al. 2014)
    """
    i, f, g, o = lstm_gates(x, h, weights)
    c = f * c + i * g
    h = o * torch.tanh(c)
    if weights.W_hr is not None:
        h = F.linear(h, weights.W_hr)  # (B, P)
    return h, c


class RNNCell(nn.RNNCell):
    """One step of the plain recurrent net as a module; parameters and options are those of torch.nn.RNNCell.

    Elman 1990; C1.
    """

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"RNNCell"})

    def forward(self, x: Tensor, state: Tensor | None = None, *, backend: Backend = "auto") -> Tensor:
        """x (B, D) or (D,), state (B, H) or (H,), zero when not given -> the next state."""
        _check_cell(self, x, () if state is None else (state,))
        if _fused(backend):
            return super().forward(x, state)
        h = _zeros(self, x) if state is None else state
        return rnn_step(x, h, _cell_weights(self), self.nonlinearity)


class GRUCell(nn.GRUCell):
    """One step of the gated recurrent unit as a module; parameters and options are those of torch.nn.GRUCell.

    Cho et al. 2014; C1.
    """

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"GRUCell"})

    def forward(self, x: Tensor, state: Tensor | None = None, *, backend: Backend = "auto") -> Tensor:
        """x (B, D) or (D,), state (B, H) or (H,), zero when not given -> the next state."""
        _check_cell(self, x, () if state is None else (state,))
        if _fused(backend):
            return super().forward(x, state)
        h = _zeros(self, x) if state is None else state
        return gru_step(x, h, _cell_weights(self))


class LSTMCell(nn.LSTMCell):
    """One step of long short-term memory as a module; parameters and options are those of torch.nn.LSTMCell.

    Hochreiter & Schmidhuber 1997; C1.
    """

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"LSTMCell"})

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None, *, backend: Backend = "auto"
    ) -> tuple[Tensor, Tensor]:
        """x (B, D) or (D,), state h and c, each (B, H) or (H,), zero when not given -> the next h and c."""
        check_pair(state)
        _check_cell(self, x, state or ())
        if _fused(backend):
            return super().forward(x, state)
        h, c = (_zeros(self, x), _zeros(self, x)) if state is None else state
        return lstm_step(x, h, c, _cell_weights(self))


def check_backend(backend: str) -> None:
    """Raise ValueError for a backend that does not exist."""
    if backend not in BACKENDS:
        raise ValueError(unknown_name("backend", backend, BACKENDS))


def check_pair(state: object) -> None:
    """Raise TypeError for an LSTM state that is not the pair (h, c); a tensor would be unpacked row by row."""
    if state is not None and not (isinstance(state, tuple | list) and len(state) == 2):
        raise TypeError(f"state of an LSTM must be the pair (h, c), got {type(state).__name__}")


def _check_cell(cell: nn.RNNCellBase, x: Tensor, state: tuple[Tensor, ...]) -> None:
    if x.dim() not in (1, 2) or x.shape[-1] != cell.input_size:
        raise ValueError(
            f"x must be (batch, {cell.input_size}) or ({cell.input_size},), "
            f"since input_size is {cell.input_size}, got {tuple(x.shape)}"
        )
    check_like("x", x, cell.weight_ih)
    expected = (*x.shape[:-1], cell.hidden_size)
    for part in state:
        if part.shape != expected:
            raise ValueError(f"state must be {expected} for x {tuple(x.shape)}, got {tuple(part.shape)}")
        check_like("state", part, cell.weight_ih)


def _fused(backend: str) -> bool:
    """Whether PyTorch's fused cell runs: not while compiling, since the compiler fuses the written-out step."""
    check_backend(backend)
    return backend == "torch" or (backend == "auto" and not torch.compiler.is_compiling())


def _cell_weights(cell: nn.RNNCellBase) -> Weights:
    return Weights(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)


def _zeros(cell: nn.RNNCellBase, x: Tensor) -> Tensor:
    return x.new_zeros(*x.shape[:-1], cell.hidden_size)
