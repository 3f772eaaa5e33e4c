"""Random features converging to exact attention as their number grows.

F2, F3. The numbers come from `inside/random_features.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from regard.look.inside.random_features import HeadVectors, compare_features, jane_head, relative_error
from regard.look.pictures.animations.animation import Frame
from regard.look.pictures.drawing.colours import INK, LINES, MUTED, PAPER
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable

COUNTS = tuple(2 * round(2 ** (k / 2) / 2) for k in range(4, 23))  # 4 … 2048, twice as many every second frame
SECONDS = 0.55
LAST_SECONDS = 4.0
SIGNED = LinearSegmentedColormap.from_list("signed", [LINES[1], PAPER, LINES[0]])  # estimates may be below 0


def converging_features_frames(
    head: HeadVectors | None = None,
    *,
    map: str = "trig",
    normalize: bool = False,
    draw: str = "orthogonal",
    seed: int = 0,
) -> Iterator[Frame]:
    """Yield a frame for each number of features: the estimated weights, and the error so far."""
    head = jane_head() if head is None else head
    estimates = [compare_features(head, map=map, features=F, normalize=normalize, draw=draw, seed=seed) for F in COUNTS]
    exact = estimates[0].exact
    errors = [relative_error(estimate.corrected, exact) for estimate in estimates]
    for i, estimate in enumerate(estimates):
        seconds = LAST_SECONDS if i == len(COUNTS) - 1 else SECONDS
        yield Frame(_frame(head, exact, estimate.corrected, errors, i, map), seconds)


def _frame(
    head: HeadVectors, exact: Tensor, estimate: Tensor, errors: Sequence[float], index: int, name: str
) -> Figure:
    """Draw exact and estimated weights side by side, and the error up to this number of features."""
    figure = new_figure(13.0, 4.9)
    axes: Any = figure.subplots(1, 3, width_ratios=(1, 1, 1.35))
    largest = float(exact.max())
    titles = ("exact softmax", f"{COUNTS[index]} random features ({name})")
    for i, (panel, title, weights) in enumerate(zip(axes, titles, (exact, estimate), strict=False)):
        panel.imshow(weights.numpy(), cmap=SIGNED, vmin=-largest, vmax=largest, interpolation="nearest")
        panel.set_title(title, fontsize=13, color=INK)
        panel.set_yticks(range(len(head.rows)), [printable(word) for word in head.rows] if i == 0 else [])
        panel.set_xticks(range(len(head.columns)), [printable(word) for word in head.columns])
        quiet(panel)
        panel.tick_params(length=0, labelsize=10)
        for text in panel.get_xticklabels():
            text.set(rotation=60, ha="right", va="center", rotation_mode="anchor")
    _draw_error(axes[2], errors, index)
    caption(figure, f"{printable(head.name)}. The error is |weights − exact| / |exact|. White is 0, orange below 0.")
    return fit_fonts(figure)


def _draw_error(axes: Axes, errors: Sequence[float], index: int) -> None:
    """Plot the errors so far, and the line along which they should fall."""
    guide = [errors[-1] * (COUNTS[-1] / F) ** 0.5 for F in COUNTS]
    axes.plot(COUNTS, guide, color=MUTED, linestyle=":", linewidth=1.5, label="slope −½")
    axes.plot(COUNTS[: index + 1], errors[: index + 1], color=LINES[0], linewidth=2)
    axes.plot(COUNTS[index], errors[index], color=LINES[0], marker="o", markersize=9)
    axes.set(xscale="log", yscale="log", xlabel="random features", ylabel="error")
    axes.set(xlim=(COUNTS[0] / 1.3, COUNTS[-1] * 1.3), ylim=(min(errors) / 2, max(*errors, *guide) * 2))
    ticks = [F for F in COUNTS if F & (F - 1) == 0][::2]
    axes.set_xticks(ticks, [str(F) for F in ticks])
    axes.minorticks_off()
    axes.set_title(f"error {errors[index]:.3f}", fontsize=13, color=INK)
    quiet(axes)
    axes.grid(color="#eef1f5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
