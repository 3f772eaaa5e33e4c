"""A recurrent net unrolled over a sentence, and how much of each word is left in its last state.

C1, C3, C4. The states are those of an RNN with random weights that reads word vectors from a dictionary.

    n words   h width of the state
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from regard.layers.recurrent import RNN
from regard.look.lecture_examples import FRENCH, JANE_SOURCE, concept_vectors
from regard.look.pictures.animations.animation import Frame
from regard.look.pictures.drawing.boxes import Board, Box
from regard.look.pictures.drawing.colours import INK, LINES, MUTED, PAPER, RULE

UNITS = 6
DIM = 16
SPACE = 1.95  # inches between steps
LEFT = -0.15
WIDTH, HEIGHT = 11.4, 5.2
STATE_Y, INPUT_Y = 3.0, 1.55
SECONDS = 1.2
LAST_SECONDS = 4.0
SIGNED = LinearSegmentedColormap.from_list("signed", [LINES[1], PAPER, LINES[0]])


class Unrolled(NamedTuple):
    """What an RNN computes over a sentence."""

    words: list[str]
    states: Tensor  # (n + 1, h), the zero state first
    influence: list[float]  # norm of d h_n / d x_t by word


def unrolled_sentence() -> Unrolled:
    """Compute the states of a random RNN on the sentence of E9, and the gradient of the last one."""
    words = JANE_SOURCE[:-1]
    x = concept_vectors(words, FRENCH, dim=DIM)[None].requires_grad_()  # (1, n, d)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        net = RNN(DIM, UNITS, batch_first=True)
    states, _ = net(x)
    rows = [torch.autograd.grad(states[0, -1, unit], x, retain_graph=True)[0][0] for unit in range(UNITS)]
    influence = torch.stack(rows).square().sum((0, 2)).sqrt()  # of the Jacobian of each word
    start = torch.zeros(1, UNITS)
    return Unrolled(words, torch.cat([start, states[0].detach()]), influence.tolist())


def unrolling_frames() -> Iterator[Frame]:
    """Yield the folded net, then a frame for each word, then what is left of each word at the end."""
    net = unrolled_sentence()
    yield Frame(unrolling_figure(net, 0), 2 * SECONDS)
    for step in range(1, len(net.words) + 1):
        yield Frame(unrolling_figure(net, step), SECONDS)
    yield Frame(unrolling_figure(net, len(net.words), left=True), LAST_SECONDS)


def unrolling_plot() -> Figure:
    """Draw the last frame: the whole sentence."""
    net = unrolled_sentence()
    return unrolling_figure(net, len(net.words), left=True)


def unrolling_figure(net: Unrolled, steps: int, *, left: bool = False) -> Figure:
    """Draw the net after some words; `left` adds how much the last state depends on each of them."""
    board = Board(WIDTH, HEIGHT)
    if steps == 0:
        draw_folded(board)
        return board.figure
    before = draw_state(board, LEFT + SPACE / 2 - 0.05, net.states[0], "h₀ = 0")
    for t in range(1, steps + 1):
        x = LEFT + t * SPACE
        newest = t == steps and not left
        cell = board.box(x, STATE_Y, "RNN", tint="attention" if newest else "plain", width=0.8, bold=newest)
        board.arrow((before.right[0] + 0.06, STATE_Y), (cell.left[0] - 0.03, STATE_Y))
        word = board.box(x, INPUT_Y, net.words[t - 1], tint="embedding", width=1.25)
        board.arrow(word.top, (x, cell.bottom[1] - 0.03))
        before = draw_state(board, x + SPACE / 2 - 0.05, net.states[t], f"h{subscript(t)}")
        board.arrow((cell.right[0], STATE_Y), (before.left[0] - 0.06, STATE_Y))
        if left:
            draw_influence(board, x, net.influence, t - 1)
    formula = "The same weights at every step: hₜ = tanh(xₜ W + hₜ₋₁ U + b)"
    board.note(WIDTH / 2, 4.85, formula, size=13, colour=INK)
    if left:
        text = "What the last state still knows of each word: |∂h₅/∂xₜ|. Early words fade."
    else:
        text = f"Step {steps}: the net reads “{net.words[steps - 1]}” and updates its state."
    board.note(WIDTH / 2, 0.25, text, size=13, colour=INK)
    return board.figure


def draw_folded(board: Board) -> None:
    """Draw the net as a cell with a loop."""
    middle = WIDTH / 2
    cell = board.box(middle, STATE_Y, "RNN", tint="attention", width=1.4, height=0.7, size=14, bold=True)
    word = board.box(middle, INPUT_Y, "xₜ", tint="embedding", width=1.25)
    board.arrow(word.top, (middle, cell.bottom[1] - 0.03))
    right, up = cell.right[0] + 0.75, STATE_Y + 0.85
    start, end = (cell.right[0], STATE_Y), (middle, cell.top[1] + 0.03)
    board.arrow(start, (right, STATE_Y), (right, up), (middle, up), end)
    board.note(right + 0.15, STATE_Y + 0.45, "hₜ₋₁", size=13, align="left", colour=INK)
    text = "A recurrent net is one cell that feeds its state back to itself. Unroll it over a sentence:"
    board.note(middle, 0.25, text, size=13, colour=INK)


def draw_state(board: Board, x: float, state: Tensor, name: str) -> Box:
    """Draw a state as a column of coloured cells, orange below zero and blue above."""
    size = 0.22
    top = STATE_Y + UNITS * size / 2
    for unit, value in enumerate(state.tolist()):
        colour = to_hex(SIGNED(0.5 + 0.5 * max(-1.0, min(1.0, value))))
        corner = (x - size / 2, top - (unit + 1) * size)
        board.axes.add_patch(
            Rectangle(corner, size, size, facecolor=colour, edgecolor=RULE, linewidth=0.8, zorder=3)
        )  # fmt: skip
    board.note(x, top + 0.16, name, size=11, colour=INK)
    return Box(x, STATE_Y, size, UNITS * size)


def draw_influence(board: Board, x: float, influence: list[float], index: int) -> None:
    """Draw how much the last state depends on a word, as a bar below it."""
    share = influence[index] / max(influence)
    width = 1.25
    board.axes.add_patch(Rectangle((x - width / 2, 0.98), width, 0.16, facecolor=PAPER, edgecolor=RULE, zorder=3))
    board.axes.add_patch(Rectangle((x - width / 2, 0.98), width * share, 0.16, facecolor=LINES[0], zorder=4))
    board.note(x, 0.72, f"{influence[index]:.3f}", size=10.5, colour=MUTED)


def subscript(number: int) -> str:
    """Return a number in small low digits."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
