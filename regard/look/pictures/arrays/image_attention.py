"""The attention to the patches of an image, drawn over the image.

G5; Dosovitskiy et al. 2021, figure 6.

    C channels   H height   W width   r rows of patches   c columns of patches   n panels
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, WEIGHTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

PANEL = 1.9  # inches
MAX_COLUMNS = 5  # panels side by side, with that of the image
COVER = 0.75  # opacity of the weights over the image
PALE = -450  # grey level of black below the weights, so that dark images do not hide them


def image_attention_plot(
    pixels: NDArray[np.uint8], weights: Tensor, names: Sequence[str], *, title: str = "", about: str = ""
) -> Figure:
    """Draw an image (C, H, W), and beside it one panel for each map of weights on its patches, (n, r, c).

    `names` are the titles of the panels; `about` is a caption that says whose weights these are.
    """
    if pixels.ndim != 3 or pixels.shape[0] not in (1, 3, 4):
        raise ValueError(f"pixels must be (channels, height, width), not of shape {pixels.shape}")
    if weights.dim() != 3 or 0 in weights.shape:
        raise ValueError(f"weights must be (maps, rows, columns), not of shape {tuple(weights.shape)}")
    if len(names) != len(weights):
        raise ValueError(f"there are {len(names)} names for {len(weights)} maps of weights")
    columns = min(MAX_COLUMNS, 1 + len(weights))
    rows = math.ceil((1 + len(weights)) / columns)
    height = PANEL * pixels.shape[1] / pixels.shape[2]
    figure = new_figure(PANEL * columns + 1.2, (height + 0.4) * rows + 0.9)
    panels: Sequence[Axes] = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    colours = np.moveaxis(pixels, 0, -1) if len(pixels) > 1 else pixels[0]
    panels[0].imshow(colours, cmap="gray", vmin=0, vmax=255, extent=extent_of(pixels))
    panels[0].set_title("image", fontsize=11, color=INK)
    shades = None
    for axes, name, grid in zip(panels[1:], names, weights.float().numpy(), strict=False):
        axes.imshow(pixels.mean(0), cmap="gray", vmin=PALE, vmax=255, extent=extent_of(pixels))
        shades = axes.imshow(
            grid, cmap=WEIGHTS, vmin=0, vmax=float(weights.max()), alpha=COVER, extent=extent_of(pixels), zorder=2
        )
        axes.set_title(name, fontsize=11, color=INK)
    for axes in panels:
        axes.set(xticks=[], yticks=[])
        quiet(axes)
    for axes in panels[1 + len(weights) :]:
        axes.set_axis_off()
    assert shades is not None
    bar = figure.colorbar(shades, ax=panels, shrink=0.8, pad=0.02)
    bar.set_label("attention weight", color=INK)
    quiet(bar.ax)
    if title:
        figure.suptitle(title, fontsize=14, weight="bold", color=INK)
    if about:
        caption(figure, about)
    return figure


def extent_of(pixels: NDArray[np.uint8]) -> tuple[float, float, float, float]:
    """Return the edges of an image: left, right, bottom, top."""
    return -0.5, pixels.shape[2] - 0.5, pixels.shape[1] - 0.5, -0.5
