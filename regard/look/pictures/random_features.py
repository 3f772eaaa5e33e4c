"""Picture of random features: weights side by side, error against features, cost against length.

F1, F2, F3. The numbers come from `inside/random_features.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from torch import Tensor

from regard.attention.linear.feature_maps import make_map
from regard.look.inside.random_features import (
    COUNTS,
    Estimates,
    HeadVectors,
    compare_features,
    exact_operations,
    feature_errors,
    feature_operations,
    jane_head,
    relative_error,
)
from regard.look.pictures.drawing.colours import INK, LINES, MUTED, PAPER, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet
from regard.look.pictures.drawing.fonts import fit_fonts, printable

SIGNED = LinearSegmentedColormap.from_list("signed", [LINES[1], PAPER, LINES[0]])  # estimates may be below 0
LENGTHS = tuple(2**i for i in range(6, 17))
MOST_WORDS = 24  # beside a map


def random_features_plot(
    head: HeadVectors | None = None,
    *,
    map: str = "trig",
    features: int = 128,
    normalize: bool = False,
    draw: str = "orthogonal",
    seed: int = 0,
    seeds: int = 16,
) -> Figure:
    """Draw exact weights, the lecture's formula and a corrected map of one head; error by features, cost by length; F3.

    The head defaults to the sentence of E9 with its small matrices. `map`, `features`, `normalize`, `draw` and `seed`
    are those of `compare_features`; `seeds` is the number of draws for the error.
    """
    head = jane_head() if head is None else head
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if map == "plain":
        raise ValueError("plain is the lecture's formula, which is always drawn: choose another map to compare with it")
    estimates = compare_features(head, map=map, features=features, normalize=normalize, draw=draw, seed=seed)
    figure = new_figure(12.4, 8.2)
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    above, below = halves
    _draw_maps(above, estimates, head, map, features)
    errors = {
        name: feature_errors(head, name, seeds=seeds, normalize=normalize, draw=draw, seed=seed)
        for name in ("plain", map)
    }
    left, right = below.subplots(1, 2)
    _draw_errors(left, errors, None if normalize else relative_error(estimates.limit, estimates.exact))
    d = head.q.shape[1]
    F, M = make_map(map).sizes(None if map == "elu" else features, d)
    _draw_cost(right, d, M, F)
    what = "queries and keys brought to length 1" if normalize else "queries and keys as they are"
    caption(
        figure,
        f"{printable(head.name)}: {what}, width {d}, {draw} rows, seed {seed}. The error is |weights − exact| / "
        f"|exact|: the median of {seeds} draws and their range. Costs are multiplications of one "
        f"head: exact L²(d+e), by features 2LMd + 2LF(e+1), for d = e = {d}, M = {M}, F = {F}.",
    )
    return fit_fonts(figure)


def _draw_maps(figure: SubFigure, estimates: Estimates, head: HeadVectors, name: str, features: int) -> None:
    """Draw the four maps on one colour scale, each with its error."""
    titles = (
        "exact softmax",
        "lecture's formula,\ninfinitely many features",
        f"lecture's formula,\n{features} features",
        "linear attention,\nelu(x) + 1" if name == "elu" else f"corrected ({name}),\n{features} features",
    )
    largest = float(estimates.exact.max())
    axes = figure.subplots(1, 4)
    for i, (panel, title, weights) in enumerate(zip(axes, titles, estimates, strict=True)):
        image = panel.imshow(weights.numpy(), cmap=SIGNED, vmin=-largest, vmax=largest, interpolation="nearest")
        error = "" if i == 0 else f"\nerror {relative_error(weights, estimates.exact):.3f}"
        panel.set_title(title + error, fontsize=11, color=INK)
        _label(panel, head.rows if i == 0 else (), head.columns)
    figure.colorbar(image, ax=list(axes), shrink=0.6, pad=0.01).set_label("weight", color=INK)
    quiet(figure.axes[-1])  # the colour bar


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Label a map with its words; every second, third, … if there are many."""
    for words, put in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        every = max(1, math.ceil(len(words) / MOST_WORDS))
        put(range(0, len(words), every), [printable(word) for word in words[::every]])
    quiet(axes)
    axes.tick_params(length=0, labelsize=9)
    for text in axes.get_xticklabels():
        text.set(rotation=60, ha="right", va="center", rotation_mode="anchor")


def _draw_errors(axes: Axes, errors: dict[str, Tensor], bias: float | None) -> None:
    """Plot medians with bands, a line that falls as F^-1/2, and the bias of the lecture's formula."""
    for colour, (name, curve) in zip((LINES[1], LINES[0]), errors.items(), strict=False):
        middle = curve.median(dim=0).values
        label = {"plain": "lecture's formula", "elu": "elu(x) + 1"}.get(name, f"corrected ({name})")
        axes.plot(COUNTS, middle.numpy(), color=colour, marker="o", markersize=5, linewidth=2, label=label)
        axes.fill_between(COUNTS, curve.amin(0).numpy(), curve.amax(0).numpy(), color=colour, alpha=0.15, linewidth=0)
    last = float(middle[-1])
    half = [last * (COUNTS[-1] / F) ** 0.5 for F in COUNTS]
    axes.plot(
        COUNTS,
        half,
        color=MUTED,
        linestyle=":",
        linewidth=1.5,
        label="slope −½: four times the features, half the error",
    )
    if bias is not None:
        axes.axhline(bias, color=LINES[1], linestyle="--", linewidth=1.2, label="limit of the lecture's formula")
    axes.set(xscale="log", yscale="log", xlabel="features F", ylabel="relative error")
    axes.set_xticks(COUNTS, [str(F) for F in COUNTS])
    axes.minorticks_off()
    _finish(axes, "Error against the number of features")


def _draw_cost(axes: Axes, d: int, M: int, F: int) -> None:
    """Plot the multiplications by length, and where the two lines meet."""
    exact = [exact_operations(L, d, d) for L in LENGTHS]
    linear = [feature_operations(L, d, d, rows=M, features=F) for L in LENGTHS]
    axes.plot(LENGTHS, exact, color=INK, linewidth=2, label="exact: grows as L²")
    axes.plot(LENGTHS, linear, color=LINES[0], linewidth=2, label=f"{F} features: grows as L")
    meeting = feature_operations(1, d, d, rows=M, features=F) / exact_operations(1, d, d)
    axes.axvline(meeting, color=MUTED, linestyle=":", linewidth=1.5, label=f"equal at L = {meeting:.0f}")
    axes.set(xscale="log", yscale="log", xlabel="length L", ylabel="multiplications per head")
    axes.set_xticks(LENGTHS[::2], [f"{L:,}" for L in LENGTHS[::2]])
    axes.minorticks_off()
    _finish(axes, "Cost against the length")


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    quiet(axes)
