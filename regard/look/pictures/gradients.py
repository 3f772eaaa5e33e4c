"""How far back gradients reach in recurrent networks and in attention, computed by autograd.

C3, H2; Bengio et al. 1994, Hochreiter & Schmidhuber 1997. The norm of d y_T / d x_{T-k} against the distance k.

    D width of inputs and outputs   T length   k distance back from the last step
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from regard.attention.multihead import MultiHeadAttention
from regard.layers.recurrent import LSTM, RNN
from regard.look.pictures.drawing.colours import INK, LINES, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

Network = Callable[[Tensor], Tensor]


def gradient_norms(network: Network, x: Tensor, outputs: int | None = None) -> Tensor:
    """Return the Frobenius norms of d y_T / d x_{T-k} for k = 0 … T-1, where network maps (O, T, D) to (O, T, O).

    x is one sequence (T, D), and `outputs` is O, by default D. One backward pass gives the whole Jacobian: row b of the
    batch is a copy of the sequence and is differentiated with respect to output b of the last step.
    """
    T, D = x.shape
    copies = x.detach().expand(outputs or D, T, D).clone().requires_grad_()  # (O, T, D)
    y = network(copies)
    (jacobian,) = torch.autograd.grad(y[:, -1].diagonal().sum(), copies)  # [b, t, d]: d y_T[b] / d x_t[d]
    return jacobian.square().sum(dim=(0, 2)).sqrt().flip(0)  # (T,), by k


def rnn(D: int, *, gain: float = 1.0) -> Network:
    """Make a plain recurrent network; `gain` multiplies its recurrent weights."""
    layer = RNN(D, D, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.get_parameter("weight_hh_l0").mul_(gain)
    return lambda x: layer(x)[0]


def lstm(D: int, *, forget_bias: float = 0.0) -> Network:
    """Make an LSTM; `forget_bias` opens its forget gates. Some libraries add 1 to remember longer, torch does not."""
    layer = LSTM(D, D, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.get_parameter("bias_hh_l0")[D : 2 * D] += forget_bias  # torch's order: input, forget, cell, output gate
    return lambda x: layer(x)[0]


def attention(D: int) -> Network:
    """Make one layer of causal self-attention, in which every input is one step away."""
    layer = MultiHeadAttention(dim=D, heads=4).double()
    return lambda x: layer(x, causal=True)


def gradient_plot(*, length: int = 80, dim: int = 32, seeds: int = 8) -> Figure:
    """Plot the gradient norm against the distance for untrained RNN, LSTM and attention: median and range.

    C3: vanishing and exploding gradients, distant positions disregarded.
    """
    for name, value, minimum in (("length", length, 2), ("dim", dim, 4), ("seeds", seeds, 1)):
        if value < minimum:
            raise ValueError(f"{name} must be at least {minimum}, not {value}")
    if dim % 4:
        raise ValueError(f"dim must be a multiple of the 4 heads, not {dim}")
    figure = new_figure(8.2, 4.8)
    axes = figure.add_subplot()
    for (name, norms), colour in zip(
        untrained_norms(length, dim, seeds).items(), (*LINES[:3], INK, LINES[3]), strict=True
    ):
        axes.fill_between(range(length), norms.amin(0).numpy(), norms.amax(0).numpy(), color=colour, alpha=0.15)
        axes.plot(range(length), norms.median(0).values.numpy(), color=colour, linewidth=2.2, label=name)
    axes.set(yscale="log", xlabel="distance k", ylabel=r"norm of $\partial y_T\,/\,\partial x_{T-k}$")
    axes.set_xlim(0, length - 1)
    axes.set_title("How far back gradients reach", fontsize=13, weight="bold", color=INK, loc="left")
    axes.legend(frameon=False, labelcolor=INK, loc="lower left")
    axes.grid(color=RULE, linewidth=0.6)
    quiet(axes)
    caption(
        figure,
        f"Computed by autograd on untrained layers of width {dim}. Line: median of {seeds} seeds, band: their range.",
    )
    return figure


def untrained_norms(length: int, dim: int, seeds: int) -> dict[str, Tensor]:
    """Return the gradient norms (seeds, T) of untrained networks by their names."""
    networks: dict[str, Callable[[], Network]] = {
        "attention": lambda: attention(dim),
        "RNN": lambda: rnn(dim),
        "LSTM": lambda: lstm(dim),
        "LSTM, forget bias + 1": lambda: lstm(dim, forget_bias=1.0),
        "RNN, recurrent weights × 4": lambda: rnn(dim, gain=4.0),
    }
    return {
        name: torch.stack([_one_run(make, seed, length, dim) for seed in range(seeds)])
        for name, make in networks.items()
    }


def _one_run(make: Callable[[], Network], seed: int, length: int, dim: int) -> Tensor:
    """Return the norms for one seed without changing the global random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return gradient_norms(make(), torch.randn(length, dim, dtype=torch.float64))
