"""The spectrogram of a recording, and below it the attention of each written token over time.

G6; Chan et al. 2016, figure 2.

    T frames   M bands   m tokens   n moments
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, WEIGHTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable

WIDTH = 9.5  # inches
SOUND, ROW, LEAST_ROWS = 1.6, 0.28, 4  # heights, and the rows that the weights take at least


def speech_attention_plot(
    frames: Tensor,
    weights: Tensor,
    tokens: Sequence[str],
    *,
    seconds: float,
    step: float,
    title: str = "",
    about: str = "",
) -> Figure:
    """Draw the log-mel frames (T, M) of `seconds`, and the weights (m, n) of tokens on moments `step` seconds apart.

    `about` is a caption that says whose weights these are.
    """
    if frames.dim() != 2 or 0 in frames.shape:
        raise ValueError(f"frames must be (T, bands), not of shape {tuple(frames.shape)}")
    if weights.dim() != 2 or 0 in weights.shape:
        raise ValueError(f"weights must be (tokens, moments), not of shape {tuple(weights.shape)}")
    if len(tokens) != len(weights):
        raise ValueError(f"there are {len(tokens)} tokens for {len(weights)} rows of weights")
    rows = ROW * max(LEAST_ROWS, len(tokens))
    figure = new_figure(WIDTH, SOUND + rows + 1.3)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[SOUND, rows])
    above.imshow(
        frames.T.numpy(), aspect="auto", origin="lower", cmap="gray_r", extent=(0, seconds, 0, frames.shape[1])
    )
    above.set_ylabel("mel bands")
    above.set_yticks([])
    moments = weights.shape[1] * step
    shades = below.imshow(
        weights.numpy(),
        aspect="auto",
        cmap=WEIGHTS,
        vmin=0,
        vmax=float(weights.max()),
        extent=(-step / 2, moments - step / 2, len(tokens) - 0.5, -0.5),  # a moment is centred at its vector
        interpolation="nearest",
    )
    below.set_yticks(range(len(tokens)), [printable(token) for token in tokens])
    below.set_xlabel("seconds")
    below.set_xlim(0, seconds)
    for axes in (above, below):
        quiet(axes)
    bar = figure.colorbar(shades, ax=[above, below], shrink=0.6, pad=0.02)
    bar.set_label("attention weight", color=INK)
    quiet(bar.ax)
    if title:
        figure.suptitle(printable(title), fontsize=14, weight="bold", color=INK)
    if about:
        caption(figure, about)
    return fit_fonts(figure)
