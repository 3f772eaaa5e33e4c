"""Where a captioner looked for each word: the attention over an image, or over the frames of a video.

G4; Xu et al. 2015, figures 2 and 3.

    T frames   C channels   H height   W width   w words   r rows and c columns of cells
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from regard.look.pictures.arrays.image_attention import COVER, PALE, extent_of, image_attention_plot
from regard.look.pictures.drawing.colours import INK, WEIGHTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

FRAME = 1.1  # inches


def caption_attention_plot(
    pixels: NDArray[np.uint8], weights: Tensor, words: Sequence[str], *, title: str = "", about: str = ""
) -> Figure:
    """Draw frames (T, C, H, W) with the weights of each word on their cells, (w, T, r, c).

    An image has one panel per word; a video has a row of frames per word.
    """
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3, 4):
        raise ValueError(f"pixels must be (frames, channels, height, width), not of shape {pixels.shape}")
    if weights.dim() != 4 or 0 in weights.shape or weights.shape[1] != len(pixels):
        raise ValueError(f"weights must be (words, {len(pixels)}, rows, columns), not of shape {tuple(weights.shape)}")
    if len(words) != len(weights):
        raise ValueError(f"there are {len(words)} words for {len(weights)} maps of weights")
    if len(pixels) == 1:
        return image_attention_plot(pixels[0], weights[:, 0], words, title=title, about=about)
    frames, height = len(pixels), FRAME * pixels.shape[2] / pixels.shape[3]
    figure = new_figure(FRAME * frames + 2, height * (1 + len(words)) + 1)
    panels = figure.subplots(1 + len(words), frames, squeeze=False)
    for t, (axes, frame) in enumerate(zip(panels[0], pixels, strict=True)):
        colours = np.moveaxis(frame, 0, -1) if len(frame) > 1 else frame[0]
        axes.imshow(colours, cmap="gray", vmin=0, vmax=255, extent=extent_of(frame))
        axes.set_title(f"frame {t}", fontsize=9, color=INK)
    shades = None
    for row, word, maps in zip(panels[1:], words, weights.float().numpy(), strict=True):
        for axes, frame, grid in zip(row, pixels, maps, strict=True):
            axes.imshow(frame.mean(0), cmap="gray", vmin=PALE, vmax=255, extent=extent_of(frame))
            shades = axes.imshow(
                grid, cmap=WEIGHTS, vmin=0, vmax=float(weights.max()), alpha=COVER, extent=extent_of(frame), zorder=2
            )
        row[0].set_ylabel(word, rotation=0, ha="right", va="center", fontsize=11, color=INK)
    for axes in panels.flatten():
        axes.set(xticks=[], yticks=[])
        quiet(axes)
    assert shades is not None
    bar = figure.colorbar(shades, ax=panels.flatten().tolist(), shrink=0.8, pad=0.02)
    bar.set_label("attention weight", color=INK)
    quiet(bar.ax)
    if title:
        figure.suptitle(title, fontsize=14, weight="bold", color=INK)
    if about:
        caption(figure, about)
    return figure
