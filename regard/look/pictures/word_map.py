"""A map of word vectors: their first two principal components, with arrows between pairs of words.

A2. Mikolov et al. 2013b, figure 2: pairs with the same relation have almost parallel arrows.

    n words   D width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, LINES, MUTED, RULE
from regard.look.pictures.drawing.figures import caption, new_figure, quiet

Place = tuple[tuple[int, int], Literal["left", "center", "right"], Literal["bottom", "center", "top"]]
PLACES: tuple[Place, ...] = (
    ((0, 7), "center", "bottom"),
    ((0, -7), "center", "top"),
    ((7, 0), "left", "center"),
    ((-7, 0), "right", "center"),
)  # of a label at its point: above, below, right, left


def principal_components(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Project vectors (n, D) on their first two principal components: (n, 2), and the share of variance of each, (2,).

    The sign of a component is arbitrary; here its largest entry is positive.
    """
    if len(vectors) < 3:
        raise ValueError(f"a map needs at least three words, got {len(vectors)}")
    centred = vectors.double() - vectors.double().mean(0)
    _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
    first = directions[:2]  # (2, D)
    first = first * first.gather(1, first.abs().argmax(1, keepdim=True)).sign()
    share = singular[:2] ** 2 / (singular**2).sum().clamp(min=torch.finfo(torch.float64).tiny)
    return centred @ first.T, share


def word_map_plot(
    vectors: Tensor, words: Sequence[str], *, arrows: Sequence[tuple[int, int]] = (), title: str = "Word vectors"
) -> Figure:
    """Plot words (n) at the first two principal components of their vectors (n, D); arrows join words by number."""
    points, share = principal_components(vectors)
    figure = new_figure(7.6, 5.6)
    axes = figure.add_subplot()
    x, y = points.T.tolist()
    axes.plot(x, y, "o", color=LINES[0], markersize=5, linewidth=0)
    for start, end in arrows:
        style = {"arrowstyle": "-|>", "color": LINES[1], "linewidth": 1.6, "shrinkA": 4, "shrinkB": 4}
        axes.annotate("", (x[end], y[end]), (x[start], y[start]), arrowprops=style)
    axes.margins(0.16, 0.1)
    axes.set(xlabel=f"first component, {share[0]:.0%} of the variance", ylabel=f"second component, {share[1]:.0%}")
    axes.set_title(title, fontsize=13, weight="bold", color=INK, loc="left")
    axes.grid(color=RULE, linewidth=0.6)
    axes.tick_params(colors=MUTED)
    quiet(axes)
    note = " Arrows join pairs with one relation: the more parallel, the better an analogy works." if arrows else ""
    caption(figure, f"{len(words)} words in {vectors.shape[1]} dimensions, projected by PCA.{note}")
    partners = {start: end for pair in arrows for start, end in (pair, pair[::-1])}
    above = [i not in partners or y[i] >= y[partners[i]] for i in range(len(words))]  # labels do not cover arrows
    _write_labels(axes, words, points, above)
    return figure


def _write_labels(axes: Axes, words: Sequence[str], points: Tensor, above: Sequence[bool]) -> None:
    """Write each word above or below its point, or beside it if that covers another label or point."""
    figure = cast("Figure", axes.figure)
    figure.draw_without_rendering()  # the layout decides where the points are
    centres = axes.transData.transform(points.numpy())  # (n, 2) in pixels
    dots = [Bbox.from_bounds(across - 4, up - 4, 8, 8) for across, up in centres]
    written: list[Bbox] = []
    for i, word in enumerate(words):
        places = PLACES if above[i] else (PLACES[1], PLACES[0], *PLACES[2:])
        labels = [_label(axes, word, points[i].tolist(), place, 11 if len(words) <= 30 else 8) for place in places]
        boxes = [label.get_window_extent() for label in labels]
        taken = [*written, *dots[:i], *dots[i + 1 :]]
        best = next((n for n, box in enumerate(boxes) if not any(box.overlaps(other) for other in taken)), 0)
        written.append(boxes[best])
        for n, label in enumerate(labels):
            if n != best:
                label.remove()


def _label(axes: Axes, word: str, point: list[float], place: Place, size: int) -> Annotation:
    offset, across, up = place
    return axes.annotate(
        word, (point[0], point[1]), offset, textcoords="offset points", ha=across, va=up, fontsize=size, color=INK
    )
