"""Matrices as pictures: an alignment, a mask, position encodings, one-hot rows.

A1, B4, D10, D16. Rows are targets, queries or positions; columns are sources, keys or dimensions.

    m rows   n columns   T positions   d width
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath
from torch import Tensor

from regard.look.pictures.drawing.colours import INK, PAPER, RULE, TABLE, TINTS, WEIGHTS, colour_of, ink_on
from regard.look.pictures.drawing.figures import axes_at, caption, new_figure, quiet, wrapped
from regard.look.pictures.drawing.fonts import families_for, fit_fonts, printable

CELL = 0.46  # inches; a value of two digits fits
WORD = 12  # points
SLOPE = 60  # degrees, of the source words


def alignment_plot(
    weights: Tensor | Sequence[Sequence[float]],
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str = "",
    made: str = "",
    values: bool = True,
) -> Figure:
    """Draw the alignment matrix: row i has the attention weights with which the model wrote target word i.

    Bahdanau et al. 2015, figure 3; D16. weights is (m, n) with entries from 0 to 1; made is a caption below
    the picture; values writes the weights of at least 0.01 into the cells. Long sentences make a larger figure.
    """
    table = _check_weights(weights, source, target)
    m, n = table.shape
    source, target = [printable(word) for word in source], [printable(word) for word in target]
    axes, bar_axes = _sheet(m, n, source, target, title, made)
    figure = axes.get_figure(root=True)
    assert figure is not None
    image = axes.imshow(table.numpy(), cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(n), list(source), rotation=SLOPE, ha="left", va="bottom", rotation_mode="anchor")
    axes.set_yticks(range(m), list(target))
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=5)
    quiet(axes)
    axes.tick_params(labelsize=WORD)
    draw_grid(axes, m, n)
    if values:
        for i, j in (table >= 0.01).nonzero().tolist():
            text = f"{table[i, j]:.2f}".removeprefix("0")
            colour = ink_on(colour_of(float(table[i, j])))
            axes.text(j, i, text, ha="center", va="center", fontsize=8.5, color=colour)
    figure.colorbar(image, cax=bar_axes).set_label("attention weight", color=INK)
    quiet(bar_axes)
    if title:
        figure.suptitle(title, fontsize=15, weight="bold", color=INK)
    if made:
        caption(figure, made)
    return fit_fonts(figure)


def _sheet(m: int, n: int, source: Sequence[str], target: Sequence[str], title: str, made: str) -> tuple[Axes, Axes]:
    """Return axes for m x n equal cells and for the colour bar, on a figure with room for all the words."""
    fonts = FontProperties(family=families_for((*source, *target))[0])
    widths = [text_width(word, fonts) for word in source]
    aside = max(text_width(word, fonts) for word in target) + 0.35
    above = math.sin(math.radians(SLOPE)) * max(widths) + 0.4 + (0.45 if title else 0)
    reach = max((j + 0.5) * CELL + math.cos(math.radians(SLOPE)) * width for j, width in enumerate(widths))
    across, body = CELL * n, max(CELL * m, 1.6)  # the bar needs its height even beside a single row
    width = max(aside + max(across + 1.15, reach + 0.35), 3.0)
    below = 0.3 + 0.17 * len(wrapped(made, width).splitlines())
    figure = new_figure(width, below + body + above, layout=None)
    axes = axes_at(figure, aside, below + body - CELL * m, across, CELL * m)
    return axes, axes_at(figure, aside + across + 0.25, below, 0.16, body)


def _check_weights(weights: Tensor | Sequence[Sequence[float]], source: Sequence[str], target: Sequence[str]) -> Tensor:
    try:
        table = torch.as_tensor(weights, dtype=torch.float32).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"weights must be rows of numbers, all rows of the same length: {error}") from error
    if table.dim() != 2 or 0 in table.shape:
        raise ValueError(f"weights must be a matrix with at least one cell, not of shape {tuple(table.shape)}")
    if table.shape != (len(target), len(source)):
        raise ValueError(
            f"weights has shape {tuple(table.shape)}, but {len(target)} target and {len(source)} source words "
            f"need ({len(target)}, {len(source)})"
        )
    if not bool(((table >= 0) & (table <= 1.0001)).all()):
        raise ValueError(f"weights must lie between 0 and 1, but run from {table.min():.3g} to {table.max():.3g}")
    return table.clamp(max=1.0)


def text_width(word: str, fonts: FontProperties, size: float = WORD) -> float:
    """Return the width of a word in inches, plus a tenth, because screens round letters to whole pixels."""
    return 1.1 * float(TextPath((0, 0), word or " ", size=size, prop=fonts).get_extents().width) / 72


def draw_grid(axes: Axes, m: int, n: int) -> None:
    """Draw white lines between the cells."""
    axes.set_xticks([j - 0.5 for j in range(1, n)], minor=True)
    axes.set_yticks([i - 0.5 for i in range(1, m)], minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=1.2)
    axes.tick_params(which="minor", length=0)


def positions_plot(table: Tensor, *, title: str = "Sinusoidal positions") -> Figure:
    """Draw the heat map of a table of position vectors (T, d), one row per position; B4."""
    if table.dim() != 2 or 0 in table.shape:
        raise ValueError(f"table must be (positions, width), not of shape {tuple(table.shape)}")
    T, d = table.shape
    # A whole number of pixels for each dimension (at 160 dpi), or the stripes of sine and cosine would beat.
    width, height = d * max(1, round(1400 / d)) / 160, T * max(1, round(560 / T)) / 160
    figure = new_figure(width + 2.0, height + 1.2, layout=None)
    axes = axes_at(figure, 0.8, 0.7, width, height)
    image = axes.imshow(table.detach().cpu().numpy(), cmap=WEIGHTS, aspect="auto", interpolation="nearest")
    axes.set(xlabel="dimension", ylabel="position in the sentence")
    axes.set_title(title, fontsize=14, weight="bold", color=INK, loc="left")
    quiet(axes)
    bar = axes_at(figure, width + 0.95, 0.7, 0.14, height)
    figure.colorbar(image, cax=bar).set_label("value", color=INK)
    quiet(bar)
    return figure


def mask_plot(mask: Tensor, *, title: str = "") -> Figure:
    """Draw a mask (m, n), True = may attend: allowed cells filled, masked ones hatched; D10."""
    if mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool (True = may attend), not {mask.dtype}")
    if mask.dim() != 2 or 0 in mask.shape:
        raise ValueError(f"mask must be a matrix (queries, keys), not of shape {tuple(mask.shape)}")
    m, n = mask.shape
    side = min(CELL, 12 / max(m, n))
    figure = new_figure(max(side * n + 1.2, 3.4), max(side * m + 1.6, 2.6))
    axes = figure.add_subplot()
    for i, row in enumerate(mask.tolist()):
        for j, allowed in enumerate(row):
            corner = (j - 0.5, i - 0.5)
            if allowed:
                cell = Rectangle(corner, 1, 1, facecolor=TABLE[150], edgecolor=PAPER, linewidth=1.2)
            else:
                cell = Rectangle(corner, 1, 1, facecolor=TINTS["frame"], edgecolor=RULE, hatch="////", linewidth=0)
            axes.add_patch(cell)
    axes.set(xlim=(-0.5, n - 0.5), ylim=(m - 0.5, -0.5), aspect="equal")
    axes.set_xlabel("key", color=INK)
    axes.set_ylabel("query", color=INK)
    every = max(1, max(m, n) // 16)
    axes.set_xticks(range(0, n, every))
    axes.set_yticks(range(0, m, every))
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.xaxis.set_label_position("top")
    quiet(axes)
    if title:
        figure.suptitle(title, fontsize=13, weight="bold", color=INK)
    caption(figure, "filled: may attend     hatched: masked")
    return figure


def one_hot_plot(word: str = "SUNNY", *, dim: int = 5) -> Figure:
    """Draw one-hot rows over the 26 letters, and the dense rows that they select from an embedding table; A1.

    One-hot (T, 26) times table (26, d) is the dense (T, d), so equal letters get equal rows.
    """
    letters = word.upper()
    if not letters or any(letter not in string.ascii_uppercase for letter in letters):
        raise ValueError(f"word must be made of the letters A to Z, not {word!r}")
    if dim < 1:
        raise ValueError(f"dim must be at least 1, not {dim}")
    ids = torch.tensor([string.ascii_uppercase.index(letter) for letter in letters])
    table = torch.randn(26, dim, generator=torch.Generator().manual_seed(123))
    one_hot = torch.nn.functional.one_hot(ids, 26).float()  # (T, 26)
    dense = table[ids]  # (T, d): the look-up, equal to one_hot @ table
    T = len(letters)
    figure = new_figure(0.34 * 26 + 0.62 * dim + 1.6, 0.4 * T + 1.7)
    left, right = figure.subplots(1, 2, width_ratios=[0.34 * 26, 0.62 * dim])
    left.imshow(one_hot.numpy(), cmap=WEIGHTS, vmin=0, vmax=1.25, aspect="auto")
    left.set_xticks(range(26), list(string.ascii_uppercase))
    dense_image = right.imshow(dense.numpy(), cmap=WEIGHTS, vmin=-3, vmax=3, aspect="auto")
    right.set_xticks(range(dim), [str(d) for d in range(dim)])
    for axes, title, rows in ((left, "sparse: one-hot rows", ids.tolist()), (right, "dense: rows of the table", None)):
        labels = [f"{letter}  {row}" for letter, row in zip(letters, rows, strict=True)] if rows else list(letters)
        axes.set_yticks(range(T), labels)
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axes.set_title(title, fontsize=12, weight="bold", color=INK, loc="left")
        quiet(axes)
    draw_grid(left, T, 26)
    draw_grid(right, T, dim)
    for i, j in one_hot.nonzero().tolist():
        left.text(j, i, "1", ha="center", va="center", fontsize=10, color=ink_on(TABLE[204]))
    for i, row in enumerate(dense.tolist()):
        for j, value in enumerate(row):
            colour = ink_on(to_hex(dense_image.to_rgba(value)))
            right.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=9, color=colour)
    caption(figure, "A one-hot row times the table is one row of the table; a look-up gives it without multiplying.")
    return figure
