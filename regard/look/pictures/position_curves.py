"""Curves of the position encodings: how their inner products depend on the distance.

B3 and B4. Vaswani et al. 2017, section 3.5.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from regard.look.pictures.drawing.colours import INK, LINES, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.positions.sinusoids import distance_variance, inner_products, sinusoidal


def position_variance_plot(dim: int = 128, distances: int = 50) -> Figure:
    """Plot the share of the variance of p_t . p_t' over the distance in the first k dimensions; B4.

    The marks are where the curve passes the shares of the lecture: 81% and 95% for dim = 128 and 50 distances.
    """
    share = distance_variance(dim, distances)
    share = share / share[-1]  # of all d dimensions
    k = torch.arange(2, dim + 1, 2)
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    axes.plot(k.numpy(), share.numpy(), color=LINES[0], linewidth=2.2)
    for goal in (0.80, 0.95):
        first = int((share >= goal).nonzero()[0])
        at, value = int(k[first]), float(share[first])
        axes.plot([at], [value], "o", color=LINES[1], markersize=7)
        axes.annotate(
            f"k = {at}: {value:.1%}", (at, value), (10, -14), textcoords="offset points", fontsize=11, color=INK
        )
    axes.set(xlabel="first k dimensions", ylabel="share of the variance", xlim=(0, dim), ylim=(0, 1.04))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title("Which dimensions encode the distance", fontsize=13, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    quiet(axes)
    caption(figure, f"Variance of the inner product over distances 0 to {distances - 1}, width {dim}.")
    return figure


def position_products_plot(dim: int = 128, distances: int = 100) -> Figure:
    """Plot the inner product of two position vectors against their distance, the same from any start; B3."""
    if distances < 2:
        raise ValueError(f"distances must be at least 2, not {distances}")
    starts = (0, 50, 200)
    products = inner_products(sinusoidal(starts[-1] + distances, dim, dtype=torch.float64))
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    looks = [{"linewidth": 6, "alpha": 0.25}, {"linewidth": 2.2}, {"linewidth": 0, "marker": "o", "markersize": 3}]
    for start, colour, look in zip(starts, LINES, looks, strict=False):
        curve = products[start, start : start + distances]
        axes.plot(range(distances), curve.numpy(), color=colour, label=f"t = {start}", **look)  # type: ignore[arg-type]
    axes.set(xlabel="distance |t − t'|", ylabel="inner product of $p_t$ and $p_{t'}$", xlim=(0, distances - 1))
    axes.set_title("The inner product depends only on the distance", fontsize=13, weight="bold", color=INK, loc="left")
    axes.legend(frameon=False, labelcolor=INK)
    axes.grid(color=RULE, linewidth=0.6)
    quiet(axes)
    caption(figure, f"Sinusoidal positions of width {dim}; the three curves coincide.")
    return figure
