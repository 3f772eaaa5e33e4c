"""Random features as a picture: the maps side by side, the error against the features, the cost against the length.

F1, F2, F3. The numbers are those of random_features.py.
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
from regard.look.pictures.colours import INK, LINES, MUTED, PAPER, RULE
from regard.look.pictures.figures import caption, new_figure, quiet
from regard.look.pictures.fonts import fit_fonts, printable

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
    """Exact softmax, the lecture's formula and a corrected map on one head; error by features, cost by length; F3.

    Without a head it is the sentence of E9 with its small matrices. `map`, `features`, `normalize`, `draw` and `seed`
    as in `compare_features`; the error is that of so many `seeds`.
    """
    head = jane_head() if head is None else head
    if seeds < 1:
        raise ValueError(f"seeds counts from 1, got {seeds}")
    if map == "plain":
        raise ValueError("plain is the lecture's formula, which is drawn anyway: name a map to hold beside it")
    found = compare_features(head, map=map, features=features, normalize=normalize, draw=draw, seed=seed)
    figure = new_figure(12.4, 8.2)
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    above, below = halves
    _draw_maps(above, found, head, map, features)
    errors = {
        name: feature_errors(head, name, seeds=seeds, normalize=normalize, draw=draw, seed=seed)
        for name in ("plain", map)
    }
    left, right = below.subplots(1, 2)
    _draw_errors(left, errors, None if normalize else relative_error(found.limit, found.exact))
    d = head.q.shape[1]
    F, M = make_map(map).sizes(None if map == "elu" else features, d)
    _draw_cost(right, d, M, F)
    what = "queries and keys brought to length 1" if normalize else "queries and keys as they are"
    caption(
        figure,
        f"{printable(head.name)}: {what}, width {d}, {draw} rows, seed {seed}. The error is |weights − exact| / "
        f"|exact|: the median of {seeds} draws, and from the least to the largest. Costs are multiplications of one "
        f"head: exact L²(d+e), by features 2LMd + 2LF(e+1), for d = e = {d}, M = {M}, F = {F}.",
    )
    return fit_fonts(figure)


def _draw_maps(figure: SubFigure, found: Estimates, head: HeadVectors, name: str, features: int) -> None:
    """The four maps in one scale of colours, each with its error."""
    titles = (
        "exact softmax",
        "lecture's formula,\ninfinitely many features",
        f"lecture's formula,\n{features} features",
        "linear attention,\nelu(x) + 1" if name == "elu" else f"corrected ({name}),\n{features} features",
    )
    most = float(found.exact.max())
    axes = figure.subplots(1, 4)
    for i, (one, title, weights) in enumerate(zip(axes, titles, found, strict=True)):
        image = one.imshow(weights.numpy(), cmap=SIGNED, vmin=-most, vmax=most, interpolation="nearest")
        error = "" if i == 0 else f"\nerror {relative_error(weights, found.exact):.3f}"
        one.set_title(title + error, fontsize=11, color=INK)
        _label(one, head.rows if i == 0 else (), head.columns)
    figure.colorbar(image, ax=list(axes), shrink=0.6, pad=0.01).set_label("weight", color=INK)
    quiet(figure.axes[-1])  # the colour bar


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Words beside and below a map; every second, third, … where there are many."""
    for words, put in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        every = max(1, math.ceil(len(words) / MOST_WORDS))
        put(range(0, len(words), every), [printable(word) for word in words[::every]])
    quiet(axes)
    axes.tick_params(length=0, labelsize=9)
    for text in axes.get_xticklabels():
        text.set(rotation=60, ha="right", va="center", rotation_mode="anchor")


def _draw_errors(axes: Axes, errors: dict[str, Tensor], bias: float | None) -> None:
    """Medians with bands, a line that falls as F^-1/2, and what is left of the lecture's formula's error."""
    for colour, (name, found) in zip((LINES[1], LINES[0]), errors.items(), strict=False):
        middle = found.median(dim=0).values
        label = {"plain": "lecture's formula", "elu": "elu(x) + 1"}.get(name, f"corrected ({name})")
        axes.plot(COUNTS, middle.numpy(), color=colour, marker="o", markersize=5, linewidth=2, label=label)
        axes.fill_between(COUNTS, found.amin(0).numpy(), found.amax(0).numpy(), color=colour, alpha=0.15, linewidth=0)
    last = float(middle[-1])
    half = [last * (COUNTS[-1] / F) ** 0.5 for F in COUNTS]
    axes.plot(COUNTS, half, color=MUTED, linestyle=":", linewidth=1.5, label="slope −½: four times the features, half")
    if bias is not None:
        axes.axhline(bias, color=LINES[1], linestyle="--", linewidth=1.2, label="the lecture's formula in the limit")
    axes.set(xscale="log", yscale="log", xlabel="features F", ylabel="relative error")
    axes.set_xticks(COUNTS, [str(F) for F in COUNTS])
    axes.minorticks_off()
    _finish(axes, "Error against the number of features")


def _draw_cost(axes: Axes, d: int, M: int, F: int) -> None:
    """Counted multiplications by length, and where the two lines meet."""
    exact = [exact_operations(L, d, d) for L in LENGTHS]
    linear = [feature_operations(L, d, d, rows=M, features=F) for L in LENGTHS]
    axes.plot(LENGTHS, exact, color=INK, linewidth=2, label="exact: grows as L²")
    axes.plot(LENGTHS, linear, color=LINES[0], linewidth=2, label=f"{F} features: grows as L")
    meeting = feature_operations(1, d, d, rows=M, features=F) / exact_operations(1, d, d)
    axes.axvline(meeting, color=MUTED, linestyle=":", linewidth=1.5, label=f"equal at L = {meeting:.0f}")
    axes.set(xscale="log", yscale="log", xlabel="length L", ylabel="multiplications of a head")
    axes.set_xticks(LENGTHS[::2], [f"{L:,}" for L in LENGTHS[::2]])
    axes.minorticks_off()
    _finish(axes, "Cost against the length")


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    axes.legend(frameon=False, labelcolor=INK, fontsize=9)
    quiet(axes)
