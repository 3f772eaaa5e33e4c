"""Attributions beside attention weights, as one picture.

H4. Rows are output tokens, columns input tokens. Blue made the output more probable, orange less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.look.pictures.drawing.colours import INK, WEIGHTS
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable

if TYPE_CHECKING:
    from regard.look.attribution.attribution import Attribution
    from regard.look.trace.trace import Axis

SIGNED = LinearSegmentedColormap.from_list("regard-signed", ["#b45309", "#fafbfc", "#2062b4"])
CELL = 0.42  # inches
MAX_VALUES = 200  # cells of a panel whose numbers are written
NAMES = {
    "integrated_gradients": "integrated gradients",
    "gradient_times_input": "gradient × input",
    "occlusion": "occlusion",
}


def attribution_plot(
    attributions: Sequence[Attribution], weights: NDArray[Any] | None = None, *, title: str = ""
) -> Figure:
    """Draw attributions of the same text side by side, after the attention weights (m, n) if they are given."""
    first = attributions[0]
    rows, columns = _labels(first.outputs), _labels(first.inputs)
    panels = [("attention weights", weights)] if weights is not None else []
    panels += [(NAMES[attribution.method], attribution.values) for attribution in attributions]
    width = 1.6 + CELL * len(columns)
    figure = new_figure(width * len(panels), 1.9 + max(CELL * len(rows), 1.2))
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, values) in zip(grid, panels, strict=True):
        signed = values is not weights
        most = float(np.abs(values).max()) or 1.0
        axes.imshow(values, cmap=SIGNED if signed else WEIGHTS, vmin=-most if signed else 0, vmax=most if signed else 1)
        axes.set_xticks(range(len(columns)), columns, rotation=60, ha="left", va="bottom", rotation_mode="anchor")
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        quiet(axes)
        axes.set_title(name, fontsize=12, color=INK)
        if values.size <= MAX_VALUES:
            _write_values(axes, values, most if signed else 1.0, signed)
    if title:
        figure.suptitle(title, fontsize=14, weight="bold", color=INK)
    gaps = ", ".join(f"{NAMES[one.method]} {one.gap:.2g}" for one in attributions)
    caption(
        figure,
        f"Contributions to the log-probability of each output token, in nats. Baseline: {first.baseline}. Largest "
        f"difference between the sum of a row and what all tokens together change: {gaps}.",
    )
    return fit_fonts(figure)


def _labels(axis: Axis) -> list[str]:
    return [printable(token.text.lstrip("▁") or token.text) for token in axis.tokens]


def _write_values(axes: Any, values: NDArray[Any], most: float, signed: bool) -> None:
    for (i, j), value in np.ndenumerate(values):
        if abs(value) >= 0.05 * most:
            text = f"{value:.2f}" if not signed else f"{value:.1f}" if most >= 1 else f"{value:.1g}"
            colour = "#ffffff" if abs(value) > 0.6 * most else INK
            axes.text(j, i, text.replace("-", "−"), ha="center", va="center", fontsize=7.5, color=colour)
