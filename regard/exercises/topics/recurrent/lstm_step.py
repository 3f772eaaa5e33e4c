"""Write a step of an LSTM (Hochreiter and Schmidhuber 1997; C1)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def lstm_step(x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Input x (d), state h (n), cell c (n), W (d, 4 n), U (n, 4 n), b (4 n); return the new h and c."""
    raise NotImplementedError
'''


def reference(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor,
    *,
    order: str = "ifgo",
    candidate: str = "tanh",
    squash: bool = True,
    keep: bool = True,
    returned: str = "hc",
) -> tuple[Tensor, Tensor]:
    """Return the new state and cell, with torch's order of gates: input, forget, candidate, output."""
    parts = dict(zip(order, (x @ W + h @ U + b).chunk(4), strict=True))
    i, f, o = (torch.sigmoid(parts[gate]) for gate in "ifo")
    g = torch.tanh(parts["g"]) if candidate == "tanh" else torch.sigmoid(parts["g"])
    c = (f * c if keep else c) + i * g
    h = o * (torch.tanh(c) if squash else c)
    return (h, c) if returned == "hc" else (c, h)


def cases(draw: Draw) -> Iterator[Case]:
    for label, d, n in (("one unit", 2, 1), ("four units", 3, 4)):
        yield Case(label, (draw(d), draw(n), draw(n), draw(d, 4 * n), draw(n, 4 * n), draw(4 * n)))


EXERCISE = CodeExercise(
    question="""
        One product computes all four parts of an LSTM, side by side in PyTorch's order: input gate, forget gate,
        candidate, output gate.

            (i, f, g, o) = x W + h U + b        four parts of width n
            c' = σ(f) * c + σ(i) * tanh(g)
            h' = σ(o) * tanh(c')

        σ is the sigmoid and * multiplies elementwise. Return h' and c'.
    """,
    function="lstm_step",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "order-of-gates",
            "The last two parts are exchanged: output gate before candidate.",
            "Some libraries order the gates so. The shapes agree, and weights from elsewhere silently do nonsense.",
            order="ifog",
        ),
        mistake(
            "input-and-forget-swapped",
            "The input and the forget gate are exchanged.",
            "The cell forgets when it should write, and writes when it should forget.",
            order="figo",
        ),
        mistake(
            "sigmoid-candidate",
            "The candidate goes through a sigmoid instead of a tanh.",
            "A candidate between 0 and 1 can only increase the cell; tanh lets it go both ways.",
            candidate="sigmoid",
        ),
        mistake(
            "no-tanh-of-the-cell",
            "The cell is not squashed by tanh on its way to the state.",
            "The cell is a sum over many steps and can be large; the state should stay between -1 and 1.",
            squash=False,
        ),
        mistake(
            "nothing-forgotten",
            "The forget gate is not used: the old cell is added in full.",
            "That was the LSTM of 1997; with the forget gate of 2000, it can clear what is no longer needed.",
            keep=False,
        ),
        mistake(
            "returned-in-reverse",
            "The results are returned as (c, h).",
            "The caller takes the first for the state: PyTorch returns (h, c).",
            returned="ch",
        ),
    ),
)
