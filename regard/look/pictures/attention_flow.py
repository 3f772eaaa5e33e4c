"""The flow of q, k and v for one word of a sentence, with the numbers that regard.attend computes.

E9 and E11; D8, D9. One column per word, read from bottom to top: x -> k and v for every word, q for one.
"""

from __future__ import annotations

from matplotlib.figure import Figure
from torch import Tensor

from regard.look.lecture_examples import Flow, jane_flow
from regard.look.pictures.drawing.boxes import Board, Box
from regard.look.pictures.drawing.colours import INK, LINES, colour_of

COLUMN = 2.35  # from one word to the next
ASIDE = 0.56  # k stands this far left of a word's middle, v this far right
X_ROW, KV_ROW, BUS, SCORE_ROW, WEIGHT_ROW, SUM_ROW, Y_ROW = 1.3, 2.75, 3.75, 4.45, 5.35, 6.45, 7.45


def qkv_flow_diagram(*, word: int = 2) -> Figure:
    """Draw how the word at index `word` of "Jane visite l'Afrique en septembre" gets its new vector.

    E9: q3 asks what is happening in Africa; the key of "visite" answers. D9 step by step.
    """
    flow = jane_flow()
    n = len(flow.words)
    if not 0 <= word < n:
        raise ValueError(f"word must be an index from 0 to {n - 1}, not {word}")
    board = Board(1.85 + COLUMN * n + 0.35, 8.9)
    title = f"Self-attention for one word: {flow.words[word]}"
    board.note(0.4, 8.5, title, size=19, colour=INK, bold=True, align="left")
    asks = {2: '$q_3$ asks "what is happening in Africa?", and the key of "visite", an action, answers best'}
    board.note(0.4, 8.1, asks.get(word, ""), size=11, align="left")
    made = "Vectors and matrices are chosen by hand, small enough to check; the rest is computed by regard.attend."
    board.note(0.4, 0.2, made, size=10, align="left")
    _margin(board, word + 1, flow.k.shape[1])
    middles = [1.85 + COLUMN * (i + 0.5) for i in range(n)]
    keys = [_column(board, flow, i, x, chosen=i == word) for i, x in enumerate(middles)]
    _sum(board, flow, word, middles)
    _query(board, flow, word, middles[word], keys)
    return board.figure


def _numbers(vector: Tensor) -> str:
    return "  ".join(f"{value:.1f}" for value in vector.tolist())


def _stack(vector: Tensor) -> str:
    return _numbers(vector).replace("  ", "\n")


def _margin(board: Board, i: int, d_k: int) -> None:
    """Label each row with its operation and formula."""
    rows = [
        (0.46, "words", ""),
        (X_ROW, "embed", "person, action,\nplace, time"),
        (KV_ROW, "project", r"$k_j = x_j W_K$" "\n" r"$v_j = x_j W_V$" "\n" rf"$q_{i} = x_{i} W_Q$"),
        (SCORE_ROW, "compare", rf"$q_{i} \cdot k_j\,/\sqrt{{{d_k}}}$"),
        (WEIGHT_ROW, "softmax", rf"$a_{{{i}j}}$, sum 1"),
        (SUM_ROW, "mix", rf"$y_{i} = \Sigma_j\, a_{{{i}j}} v_j$"),
    ]
    for y, name, formula in rows:
        lines = formula.count("\n")
        board.note(0.4, y + 0.16 + 0.11 * lines, name, size=12, colour=INK, bold=True, align="left")
        board.note(0.4, y - 0.13, formula, size=11, align="left")


def _column(board: Board, flow: Flow, i: int, x: float, *, chosen: bool) -> Box:
    """Draw one word with its vector, key and value; return the box of the key."""
    board.note(x, 0.62, flow.words[i], size=13, colour=LINES[1] if chosen else INK, bold=True)
    vector = board.box(x, X_ROW, _numbers(flow.x[i]), tint="embedding", width=1.75, size=10)
    key = board.box(x - ASIDE, KV_ROW, _stack(flow.k[i]), tint="attention", width=0.52, height=0.8, size=10)
    value = board.box(x + ASIDE, KV_ROW, _stack(flow.v[i]), tint="feedforward", width=0.52, height=0.8, size=10)
    board.note(key.left[0] - 0.15, KV_ROW, f"$k_{i + 1}$", size=12, colour=INK)
    board.note(value.right[0] + 0.17, KV_ROW, f"$v_{i + 1}$", size=12, colour=INK)
    board.arrow((x, 0.8), vector.bottom)
    for target in (key, value):
        board.arrow((target.x, vector.top[1]), target.bottom)
    return key


def _query(board: Board, flow: Flow, word: int, x: float, keys: list[Box]) -> None:
    """Draw the query of one word, its scores with every key, and the softmax of the scores."""
    accent, entry = LINES[1], 0.2
    query = board.box(x, KV_ROW, _stack(flow.q[word]), tint="norm", width=0.46, height=0.8, size=10)
    board.note(x + 0.18, query.top[1] + 0.15, f"$q_{word + 1}$", size=12, colour=accent)
    board.arrow((x, X_ROW + 0.23), query.bottom, colour=accent, weight=1.8)
    for i, key in enumerate(keys):
        score = board.box(key.x, SCORE_ROW, f"{flow.scores[word, i]:.2f}", width=0.72, size=11)
        board.arrow((key.x - entry, key.top[1]), (key.x - entry, score.bottom[1]))
        a = float(flow.weights[word, i])
        weight = board.box(key.x, WEIGHT_ROW, f"{a:.2f}", width=0.72, size=11, bold=True, fill=colour_of(a))
        board.arrow(score.top, weight.bottom)
    for key in keys:
        meeting = (key.x + entry, BUS), (key.x + entry, SCORE_ROW - 0.23)
        board.arrow(query.top, (x, BUS), *meeting, colour=accent, weight=1.8, over=True)


def _sum(board: Board, flow: Flow, word: int, middles: list[float]) -> None:
    """Draw the weighted sum of the values, the new vector of the word."""
    total = board.sum(middles[word] + ASIDE, SUM_ROW, "+", radius=0.2)
    for i, middle in enumerate(middles):
        times = board.sum(middle + ASIDE, WEIGHT_ROW, "×")
        board.arrow((middle - ASIDE + 0.36, WEIGHT_ROW), times.left)
        board.arrow((middle + ASIDE, KV_ROW + 0.4), times.bottom)
        if i == word:
            board.arrow(times.top, total.bottom)
        else:
            side = total.left if i < word else total.right
            board.arrow(times.top, (middle + ASIDE, SUM_ROW), side)
    result = board.box(total.x, Y_ROW, _numbers(flow.y[word]), tint="softmax", width=1.4, size=11)
    board.arrow(total.top, result.bottom)
    board.note(result.left[0] - 0.22, Y_ROW, f"$y_{word + 1}$", size=13, colour=INK)
