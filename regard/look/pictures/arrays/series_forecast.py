"""A forecast: the history of a series, its forecast, what really came, and the attention to the past.

G6; Nie et al. 2023.

    L points that are read   F points that are forecast   C columns   n patches
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, LINES, RULE, TINTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable

ROW = 1.9  # inches
AREA = 0.35  # height of the largest weight, as a share of the panel


def point_weights(weights: Tensor, *, points: int, patch: int, stride: int) -> Tensor:
    """Spread weights on patches (…, n) over the points in time, (…, points).

    A point gets the mean weight of the patches that contain it. The last patch reaches beyond the window.
    """
    counts = torch.zeros(points)
    spread = torch.zeros(*weights.shape[:-1], points)
    for i in range(weights.shape[-1]):
        start, stop = i * stride, min(points, i * stride + patch)
        counts[start:stop] += 1
        spread[..., start:stop] += weights[..., i, None]
    return spread / counts.clamp(min=1)


def forecast_plot(
    history: NDArray[np.float64],
    forecast: NDArray[np.float64],
    columns: Sequence[str],
    *,
    truth: NDArray[np.float64] | None = None,
    weights: Tensor | None = None,
    title: str = "",
    about: str = "",
) -> Figure:
    """Draw for each column its history (L, C), its forecast (F, C) and the truth, up to (F, C).

    `weights` (C, L) of the points of the history are drawn below it; `about` is a caption.
    """
    L, C = history.shape
    if forecast.shape[1:] != (C,) or len(columns) != C:
        sizes = f"{C}, {forecast.shape[1]} and {len(columns)}"
        raise ValueError(f"history, forecast and names must have the same columns, got {sizes}")
    if weights is not None and weights.shape != (C, L):
        raise ValueError(f"weights must be ({C}, {L}), not of shape {tuple(weights.shape)}")
    figure = new_figure(9.5, ROW * C + 1.0)
    panels: Sequence[Axes] = figure.subplots(C, 1, sharex=True, squeeze=False).flatten().tolist()
    past, future = np.arange(-L, 0), np.arange(len(forecast))
    for i, axes in enumerate(panels):
        axes.plot(past, history[:, i], color=INK, linewidth=1.3, label="history")
        if truth is not None and len(truth):
            axes.plot(future[: len(truth)], truth[:, i], color=LINES[0], linewidth=1.6, label="truth")
        axes.plot(future, forecast[:, i], color=LINES[1], linewidth=1.8, linestyle="--", label="forecast")
        axes.axvline(-0.5, color=RULE, linewidth=1.0)
        axes.set_ylabel(printable(columns[i]))
        axes.set_xlim(-L, len(forecast))
        quiet(axes)
    panels[0].legend(frameon=False, labelcolor=INK, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)
    panels[-1].set_xlabel("rows from the first one that is forecast")
    if weights is not None:
        for axes, row in zip(panels, weights, strict=True):
            _draw_weights(axes, row, float(weights.max()))
    if title:
        figure.suptitle(title, fontsize=14, weight="bold", color=INK)
    if about:
        caption(figure, about)
    return fit_fonts(figure)


def _draw_weights(axes: Axes, weights: Tensor, highest: float) -> None:
    """Draw the weights of the points of a history as an area at the bottom, with an axis on the right."""
    scale = axes.twinx()
    points = np.arange(-len(weights), 0)
    scale.fill_between(points, weights.float().numpy(), step="mid", color=TINTS["attention"], linewidth=0)
    scale.set_ylim(0, highest / AREA)
    scale.set_yticks([0, highest], ["0", f"{highest:.2g}"])
    scale.set_ylabel("weight")
    quiet(scale)
    axes.set_zorder(scale.get_zorder() + 1)
    axes.patch.set_visible(False)
