"""Self-attention row by row: a query meets all keys, the softmax makes weights, and the weights mix the values.

D1, D8, D9, E9. Every number is computed from the sentence of E9 with its small matrices.

    n words   d width of queries, keys and values
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from regard.look.lecture_examples import Flow, jane_flow
from regard.look.pictures.animations.animation import Frame
from regard.look.pictures.drawing.colours import INK, LINES, MUTED, PAPER, RULE, TINTS, colour_of, ink_on
from regard.look.pictures.drawing.figures import axes_at, new_figure

CELL = 0.5  # inches
WIDTH, HEIGHT = 14.0, 6.3
TOP = 3.35  # of the matrices with a row per word
SECONDS = 1.1
LAST_SECONDS = 4.0
PHASES = ("scores", "weights", "output")
Shade = Callable[[int, int], str]


def attention_rows_frames() -> Iterator[Frame]:
    """Yield three frames for each word: its scores, its weights, its output; then the whole matrix."""
    flow = jane_flow()
    for row in range(len(flow.words)):
        for phase in PHASES:
            yield Frame(attention_rows_figure(flow, row, phase), SECONDS)
    yield Frame(attention_rows_figure(flow, len(flow.words), ""), LAST_SECONDS)


def attention_rows_plot() -> Figure:
    """Draw the last frame: all rows."""
    flow = jane_flow()
    return attention_rows_figure(flow, len(flow.words), "")


def attention_rows_figure(flow: Flow, row: int, phase: str) -> Figure:
    """Draw the rows before `row` in full, and `row` up to its phase."""
    figure = new_figure(WIDTH, HEIGHT, layout=None)
    axes = axes_at(figure, 0, 0, WIDTH, HEIGHT)
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    n = len(flow.words)
    step = PHASES.index(phase) if phase else -1
    rows = [row + (step >= i) for i in range(3)] if row < n else [n] * 3  # of scores, weights and output
    lit = TINTS["attention"]

    def tint(active: bool) -> Shade:
        return lambda i, j: lit if active and i == row else PAPER

    for i, word in enumerate(flow.words):
        bold = "bold" if i == row else "normal"
        axes.text(1.15, TOP - (i + 0.5) * CELL, word, ha="right", va="center", fontsize=11, color=INK, weight=bold)
    matrix(axes, 1.3, TOP, flow.q, "queries Q", tint(step >= 0), n)
    matrix(axes, 3.3, TOP + 0.45 + 3 * CELL, flow.k.T, "", plain(lit if step == 0 else PAPER), 3)
    axes.text(3.1, TOP + 0.45 + 1.5 * CELL, "keys Kᵀ", ha="right", va="center", fontsize=10.5, color=LINES[0])
    matrix(axes, 3.3, TOP, flow.scores, "scores QKᵀ/√3", tint(step in (0, 1)), rows[0])
    weights = matrix_shades(flow.weights)
    matrix(axes, 6.5, TOP, flow.weights, "weights: softmax of each row", weights, rows[1])
    given = flow.weights[row] if step == 2 else None
    values = plain(PAPER) if given is None else matrix_shades(given[:, None].expand(n, flow.v.shape[1]))
    matrix(axes, 9.7, TOP, flow.v, "values V", values, n)
    matrix(axes, 11.9, TOP, flow.y, "output", tint(step == 2), rows[2])
    for left, top in ((3.3, TOP + 0.45 + 3 * CELL), (6.5, TOP)):
        for j, word in enumerate(flow.words):
            place = (left + (j + 0.4) * CELL, top + 0.07)
            axes.text(*place, word, rotation=50, ha="left", va="bottom", rotation_mode="anchor", fontsize=9, color=INK)
    for x, sign in ((6.15, "→"), (9.35, "×"), (11.55, "=")):
        axes.text(x, TOP - 2.5 * CELL, sign, ha="center", va="center", fontsize=18, color=MUTED)
    axes.text(WIDTH / 2, 0.3, explanation(flow, row, step), ha="center", va="center", fontsize=13, color=INK)
    return figure


def plain(colour: str) -> Shade:
    """Return one colour for all cells."""
    return lambda i, j: colour


def matrix_shades(weights: Tensor) -> Shade:
    """Return the colour of each weight."""
    return lambda i, j: colour_of(float(weights[i, j]))


def matrix(axes: Axes, left: float, top: float, values: Tensor, title: str, shade: Shade, rows: int) -> None:
    """Draw the first rows of a matrix with its numbers; the others as empty cells."""
    m, n = values.shape
    axes.text(
        left + n * CELL / 2, top - m * CELL - 0.22, title, ha="center", va="center", fontsize=10.5, color=LINES[0]
    )
    for i in range(m):
        for j in range(n):
            colour = shade(i, j) if i < rows else PAPER
            corner = (left + j * CELL, top - (i + 1) * CELL)
            axes.add_patch(Rectangle(corner, CELL, CELL, facecolor=colour, edgecolor=RULE, linewidth=0.8))
            if i < rows:
                place = (corner[0] + CELL / 2, corner[1] + CELL / 2)
                number = f"{float(values[i, j]):.2f}"
                axes.text(*place, number, ha="center", va="center", fontsize=9, color=ink_on(colour))


def explanation(flow: Flow, row: int, step: int) -> str:
    """Say what happens in a frame."""
    if row >= len(flow.words):
        return "All rows at once: this is what a Transformer computes, as three products of matrices."
    word = flow.words[row]
    best = flow.words[int(flow.weights[row].argmax())]
    return (
        f"The query of “{word}” is compared with every key: a dot product each, divided by √3.",
        f"The softmax turns the scores of “{word}” into weights that sum to 1; the largest is that of “{best}”.",
        f"The new vector of “{word}” is the mean of all values with these weights.",
    )[step]
