"""The diagrams of E11: the whole architecture, scaled dot-product attention and multi-head attention.

Vaswani et al. 2017, figures 1 and 2; E3 to E6, D9, D11. All are read from the bottom to the top, and all
lengths are inches: x and y are centres of boxes, `floor` is the height at which a line enters a part.
"""

from __future__ import annotations

from itertools import pairwise

from matplotlib.figure import Figure

from regard.look.pictures.drawing.boxes import Board, Box
from regard.look.pictures.drawing.colours import INK

APART = 0.55  # between the arrows of keys, values and queries where they enter an attention box


def architecture_diagram(*, layers: int = 6, dim: int = 512, heads: int = 8) -> Figure:
    """The encoder-decoder Transformer with the norm after each residual sum (post-norm), with N blocks on each side.

    Vaswani et al. 2017, figure 1; E3, E4, E5, E6.
    """
    if layers < 1:
        raise ValueError(f"layers must be at least 1, not {layers}")
    _check_heads(dim, heads)
    board = Board(9.4, 10.0)
    board.note(0.5, 9.4, "The Transformer", size=21, colour=INK, bold=True, align="left")
    sizes = f"width {dim}, {heads} heads of {dim // heads}, {layers} encoder and {layers} decoder blocks"
    board.note(0.5, 8.97, sizes, size=11, align="left")
    memory = _encoder(board, 2.65, layers)
    _decoder(board, 6.75, layers, memory)
    return board.figure


def _check_heads(dim: int, heads: int) -> None:
    if heads < 1:
        raise ValueError(f"heads must be at least 1, not {heads}")
    if dim < 1 or dim % heads:
        raise ValueError(f"dim must be a multiple of heads, but {dim} is not one of {heads}")


def _encoder(board: Board, x: float, layers: int) -> Box:
    """Draw the encoder (E3): N blocks of self-attention and feed-forward, with residual connections and norms."""
    _entrance(board, x, "Source", "Jane visite l'Afrique en septembre", side=-1)
    norm = _attention(board, x, 2.35, "Multi-head\nself-attention", side=-1)
    norm = _feedforward(board, x, norm.top[1], side=-1)
    _blocks(board, x, norm, f"{layers} ×", side=-1)
    board.note(x - 1.5, norm.top[1] + 0.36, "Encoder", size=13, colour=INK, bold=True, align="left")
    return norm


def _decoder(board: Board, x: float, layers: int, memory: Box) -> None:
    """Draw the decoder (E4): N blocks, then a linear map and a softmax over the vocabulary (E6)."""
    _entrance(board, x, "Target, shifted right by one", "<start> Jane visits Africa in September", side=1)
    norm = _attention(board, x, 2.35, "Masked multi-head\nself-attention", side=1)
    norm = _cross_attention(board, x, norm.top[1], memory)
    norm = _feedforward(board, x, norm.top[1], side=1)
    _blocks(board, x, norm, f"{layers} ×", side=1)
    board.note(x + 1.5, norm.top[1] + 0.36, "Decoder", size=13, colour=INK, bold=True, align="right")
    linear = board.box(x, norm.top[1] + 0.87, "Linear", tint="linear")
    softmax = board.box(x, linear.y + 0.72, "Softmax", tint="softmax")
    board.arrow(norm.top, linear.bottom)
    board.arrow(linear.top, softmax.bottom)
    board.arrow(softmax.top, (x, softmax.y + 0.52))
    board.note(x, softmax.y + 0.66, "Next word, at every position", size=11, colour=INK, bold=True)
    board.note(x, softmax.y + 0.93, "Jane visits Africa in September <end>")


def _entrance(board: Board, x: float, title: str, words: str, *, side: int) -> None:
    """Draw the input: words, their embedding, and the position added to it (B2)."""
    board.note(x, 0.34, words)
    board.note(x, 0.61, title, size=11, colour=INK, bold=True)
    embedding = board.box(x, 1.28, "Embedding", tint="embedding")
    plus = board.sum(x, 1.95)
    board.arrow((x, 0.75), embedding.bottom)
    board.arrow(embedding.top, plus.bottom)
    board.arrow((x + side * 0.72, 1.95), plus.left if side < 0 else plus.right)
    board.note(x + side * 1.15, 1.95, "position\nencoding", colour=INK)
    board.arrow(plus.top, (x, 2.5), head=False)


def _attention(board: Board, x: float, floor: float, text: str, *, side: int) -> Box:
    """Draw self-attention: keys, values and queries all come from the line that enters at `floor`."""
    box = board.box(x, floor + 0.88, text, tint="attention", height=0.6)
    fork = floor + 0.34
    for shift in (-APART, APART):
        board.arrow((x, fork), (x + shift, fork), (x + shift, box.bottom[1]))
    board.arrow((x, floor), box.bottom)
    return _add_and_norm(board, box, floor, side=side)


def _cross_attention(board: Board, x: float, floor: float, memory: Box) -> Box:
    """Draw cross-attention: keys and values come from the encoder, queries from the decoder (D13)."""
    box = board.box(x, floor + 0.88, "Multi-head\ncross-attention", tint="attention", height=0.6)
    gap, above, fork = (memory.x + x) / 2, memory.top[1] + 0.75, floor + 0.34
    board.arrow(memory.top, (memory.x, above), (gap, above), (gap, fork), (x, fork), box.bottom)
    board.arrow((x - APART - 0.1, fork), (x - APART, fork), (x - APART, box.bottom[1]))
    board.arrow((x + APART, floor + 0.14), (x + APART, box.bottom[1]))
    board.note(memory.x + 0.15, above + 0.16, "keys and values", size=10, align="left")
    board.note(x + APART + 0.09, floor + 0.36, "queries", size=9, align="left")
    return _add_and_norm(board, box, floor, side=1)


def _feedforward(board: Board, x: float, floor: float, *, side: int) -> Box:
    """Draw the position-wise feed-forward network (E2)."""
    box = board.box(x, floor + 0.63, "Feed-forward", tint="feedforward")
    board.arrow((x, floor), box.bottom)
    return _add_and_norm(board, box, floor, side=side)


def _add_and_norm(board: Board, box: Box, floor: float, *, side: int) -> Box:
    """Draw the residual connection around a box and the norm of the sum: LayerNorm(x + f(x)), E3."""
    norm = board.box(box.x, box.top[1] + 0.38, "Add & norm", tint="norm", height=0.36)
    around, start = box.x + side * 1.22, floor + 0.14
    board.arrow(box.top, norm.bottom)
    end = norm.left if side < 0 else norm.right
    board.arrow((box.x, floor), (box.x, start), (around, start), (around, norm.y), end)
    return norm


def _blocks(board: Board, x: float, norm: Box, times: str, *, side: int) -> None:
    """Draw the frame around the block that is repeated N times."""
    floor, ceiling = 2.33, norm.top[1] + 0.17
    board.frame(x, (floor + ceiling) / 2, 3.0, ceiling - floor)
    board.note(x + side * 1.85, (floor + ceiling) / 2, times, size=15, colour=INK, bold=True)


def scaled_dot_product_diagram() -> Figure:
    """Scaled dot-product attention, step by step with the formula and shape of each step.

    Vaswani et al. 2017, equation 1 and figure 2 left; D9, D10.
    """
    board = Board(8.6, 7.6)
    x, aside = 2.3, 4.6
    board.note(0.5, 7.1, "Scaled dot-product attention", size=19, colour=INK, bold=True, align="left")
    rows = [
        (2.0, "MatMul", "attention", r"$QK^\top$", "m × n: every query against every key"),
        (2.85, "Scale", "plain", r"$QK^\top/\sqrt{d_k}$", r"so that the scores do not grow with $d_k$"),
        (3.7, "Mask (optional)", "norm", r"$-\infty$ where forbidden", "padding, later words, …"),
        (4.55, "Softmax", "softmax", r"$A$", "m × n: each row sums to 1"),
        (5.6, "MatMul", "attention", r"$Y = AV$", r"m × $d_v$: a weighted mean of the values"),
    ]
    boxes = []
    for y, text, tint, formula, meaning in rows:
        boxes.append(board.box(x if y < 5 else x + 0.45, y, text, tint=tint, width=1.9))
        board.note(aside, y + 0.13, formula, size=13, colour=INK, align="left")
        board.note(aside, y - 0.15, meaning, size=10, align="left")
    first, *_, softmax, last = boxes
    for below, above in pairwise(boxes[:-1]):
        board.arrow(below.top, above.bottom)
    board.arrow(softmax.top, (x, last.bottom[1]))
    inputs = ((x - 0.45, "Q", r"m × $d_k$"), (x + 0.45, "K", r"n × $d_k$"), (x + 1.4, "V", r"n × $d_v$"))
    for column, letter, shape in inputs:
        board.note(column, 0.95, letter, size=15, colour=INK, bold=True)
        board.note(column, 0.62, shape, size=10)
    board.arrow((x - 0.45, 1.15), (x - 0.45, first.bottom[1]))
    board.arrow((x + 0.45, 1.15), (x + 0.45, first.bottom[1]))
    board.arrow((x + 1.4, 1.15), (x + 1.4, 4.9), (x + 0.9, 4.9), (x + 0.9, last.bottom[1]))
    board.arrow(last.top, (last.x, last.top[1] + 0.4))
    board.note(last.x, last.top[1] + 0.6, "Y", size=15, colour=INK, bold=True)
    return board.figure


def multi_head_diagram(*, heads: int = 8, dim: int = 512) -> Figure:
    """Multi-head attention: project h times, attend h times, concatenate, project once more.

    Vaswani et al. 2017, section 3.2.2 and figure 2 right; D11.
    """
    _check_heads(dim, heads)
    board = Board(8.6, 7.6)
    x, aside, columns = 2.5, 5.25, (1.1, 2.5, 3.9)
    board.note(0.5, 7.1, "Multi-head attention", size=19, colour=INK, bold=True, align="left")
    attention = board.box(
        x, 3.3, "Scaled dot-product attention", tint="attention", width=3.8, height=0.7, layers=3, size=12
    )
    joined = board.box(x, 4.55, "Concatenate", tint="norm", width=2.2)
    output = board.box(x, 5.45, "Linear", tint="linear", width=2.2)
    for column, letter in zip(columns, "QKV", strict=True):
        board.note(column, 0.72, letter, size=15, colour=INK, bold=True)
        linear = board.box(column, 1.85, "Linear", tint="linear", width=1.0, layers=3)
        board.arrow((column, 0.92), linear.bottom)
        board.arrow((column, linear.top[1] + 0.14), (column, attention.bottom[1]))
    board.arrow((x, attention.top[1] + 0.14), joined.bottom)
    board.arrow(joined.top, output.bottom)
    board.arrow(output.top, (x, output.top[1] + 0.4))
    board.note(x, output.top[1] + 0.6, "Y", size=15, colour=INK, bold=True)
    board.note(x + 2.18, 3.62, f"h = {heads}", size=11, colour=INK, align="left")
    width = dim // heads
    rows = [
        (0.72, rf"$d = {dim}$", "one vector per word"),
        (1.85, r"$QW_i^Q,\ KW_i^K,\ VW_i^V$", rf"{dim} → {heads} × {width}, one stacked matrix each"),
        (3.1, r"$\mathrm{head}_i$", f"each in a subspace of width {width}"),
        (4.55, r"$[\,\mathrm{head}_1; \ldots; \mathrm{head}_h]$", f"{heads} × {width} → {dim}"),
        (5.45, r"$Y = [\ldots]\,W^O$", f"{dim} → {dim}, mixes the heads"),
    ]
    for y, formula, meaning in rows:
        board.note(aside, y + 0.13, formula, size=13, colour=INK, align="left")
        board.note(aside, y - 0.15, meaning, size=10, align="left")
    return board.figure
