"""Why scores are divided by sqrt(d): without it they grow with the width, and the softmax saturates.

D9; Vaswani et al. 2017, section 3.2.1, footnote 4.

    d width of queries and keys   n keys
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from regard.look.pictures.drawing.colours import INK, LINES, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)


class Scaling(NamedTuple):
    """What was measured for each width: the spread of the scores, the largest weight, and the gradient."""

    spread: list[float]
    largest: list[float]
    gradient: list[float]


def measure_scaling(*, scaled: bool, keys: int = 16, queries: int = 512, seed: int = 0) -> Scaling:
    """Measure random queries and keys with independent features of variance 1, at each width.

    The gradient is the norm of the softmax's Jacobian, diag(a) - a a^T: how much weights change with scores.
    """
    random = torch.Generator().manual_seed(seed)
    spread, largest, gradient = [], [], []
    for d in WIDTHS:
        q, k = (torch.randn(queries, n, d, generator=random, dtype=torch.float64) for n in (1, keys))
        scores = (q @ k.mT)[:, 0] * (d**-0.5 if scaled else 1.0)  # (queries, n)
        a = scores.softmax(-1)
        jacobian = torch.diag_embed(a) - a[:, :, None] * a[:, None, :]
        spread.append(float(scores.std()))
        largest.append(float(a.amax(-1).mean()))
        gradient.append(float(jacobian.flatten(1).norm(dim=-1).mean()))
    return Scaling(spread, largest, gradient)


def scaling_plot(*, keys: int = 16) -> Figure:
    """Plot spread of scores, largest weight and gradient of the softmax against the width, with and without 1/√d."""
    if keys < 2:
        raise ValueError(f"keys must be at least 2, not {keys}")
    figure = new_figure(10.2, 3.9)
    panels = figure.subplots(1, 3)
    measured = {
        "q · k": measure_scaling(scaled=False, keys=keys),
        "q · k / √d": measure_scaling(scaled=True, keys=keys),
    }
    titles = ("Scores spread out …", "… one key takes all …", "… and gradients vanish")
    labels = ("standard deviation of the scores", "mean of the largest weight", "norm of the softmax's gradient")
    for axes, title, label, field in zip(panels, titles, labels, Scaling._fields, strict=True):
        for (name, values), colour in zip(measured.items(), (LINES[1], LINES[0]), strict=True):
            axes.plot(WIDTHS, getattr(values, field), "o-", color=colour, linewidth=2.2, markersize=4, label=name)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="width d of queries and keys", ylabel=label, ylim=(0, None))
        axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
        axes.grid(color=RULE, linewidth=0.6)
        quiet(axes)
    panels[0].legend(frameon=False, labelcolor=INK)
    caption(
        figure,
        f"Random queries and {keys} keys with independent features of variance 1. Their dot product has variance d, so "
        f"its standard deviation is √d; divided by √d it is 1 at every width.",
    )
    return figure
