"""Diagrams without numbers: attention in a recurrent net beside the Transformer's, and the shapes of sequence tasks.

C2, C4, D3, D9, D14. All lengths are inches.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from matplotlib.figure import Figure

from regard.look.pictures.drawing.boxes import Board, Box
from regard.look.pictures.drawing.colours import INK

FORMULAS = {
    "Attention in a recurrent net": (
        ("query", r"$s_{i-1}$, the state of the decoder"),
        ("keys and values", r"$h_1, \ldots, h_n$, the states of the encoder"),
        ("score", r"$e_{ij} = w \cdot \tanh(W_q\, s_{i-1} + W_k\, h_j)$"),
        ("weights", r"$\alpha_{ij} = \mathrm{softmax}_j(e_{ij})$"),
        ("context", r"$c_i = \sum_j \alpha_{ij}\, h_j$"),
        ("queries at once", r"$m = 1$: the next state waits for this one"),
    ),
    "Attention in a Transformer": (
        ("query", r"$q_i = y_i W_Q$, from the decoder's token"),
        ("keys and values", r"$k_j = x_j W_K$ and $v_j = x_j W_V$, from the encoder"),
        ("score", r"$e_{ij} = q_i \cdot k_j \,/\, \sqrt{d_k}$"),
        ("weights", r"$\alpha_{ij} = \mathrm{softmax}_j(e_{ij})$"),
        ("context", r"$c_i = \sum_j \alpha_{ij}\, v_j$"),
        ("queries at once", r"$m$ of them: $\mathrm{softmax}(QK^T/\sqrt{d_k})\,V$"),
    ),
}


def two_attentions_diagram() -> Figure:
    """Draw the formulas of Bahdanau's attention beside those of the Transformer, line by line; D3, D9, D14."""
    board = Board(11.4, 5.2)
    board.note(0.4, 4.8, "One idea, two forms", size=18, colour=INK, bold=True, align="left")
    for x, tint, (title, rows) in zip((1.9, 6.75), ("feedforward", "attention"), FORMULAS.items(), strict=True):
        board.frame(x + 2.05, 2.3, 4.6, 4.2)
        board.box(x + 2.05, 4.05, title, tint=tint, width=4.2, bold=True)
        for number, (_, formula) in enumerate(rows):
            board.note(x + 2.05, 3.4 - 0.55 * number, formula, size=11, colour=INK)
    for number, (name, _) in enumerate(next(iter(FORMULAS.values()))):
        board.note(0.25, 3.4 - 0.55 * number, name, size=10, align="left")
    return board.figure


class Shape(NamedTuple):
    """The steps of a recurrent net at which a task has an input and an output."""

    title: str
    example: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: int


SHAPES = (
    Shape("one to many", "an image to its caption", (0,), (0, 1, 2), 3),
    Shape("many to one", "a sentence to its language", (0, 1, 2), (2,), 3),
    Shape("many to many", "each letter to the next one", (0, 1, 2), (0, 1, 2), 3),
    Shape("many to many, later", "a sentence to its translation", (0, 1), (2, 3), 4),
)


def sequence_tasks_diagram() -> Figure:
    """Draw where the inputs and outputs of a recurrent net are: one to many, many to one, many to many; C2, C4."""
    board = Board(12.4, 4.0)
    board.note(0.4, 3.6, "Shapes of sequence tasks", size=18, colour=INK, bold=True, align="left")
    left = 0.55
    for shape in SHAPES:
        centres = [left + 0.7 * step for step in range(shape.steps)]
        states = [board.box(x, 1.75, "h", tint="feedforward", width=0.46) for x in centres]
        _chain(board, states)
        for step in shape.inputs:
            token = board.box(centres[step], 0.95, "x", tint="embedding", width=0.46)
            board.arrow(token.top, states[step].bottom)
        for step in shape.outputs:
            token = board.box(centres[step], 2.55, "y", tint="softmax", width=0.46)
            board.arrow(states[step].top, token.bottom)
        middle = (centres[0] + centres[-1]) / 2
        board.note(middle, 3.05, shape.title, size=11, colour=INK, bold=True)
        board.note(middle, 0.4, shape.example, size=9)
        left = centres[-1] + 1.45
    return board.figure


def _chain(board: Board, states: list[Box]) -> None:
    for before, after in pairwise(states):
        board.arrow(before.right, after.left)
