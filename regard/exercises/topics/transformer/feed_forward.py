"""Write the position-wise feed-forward net (Vaswani et al. 2017, eq. 2; E2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def feed_forward(X: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    """X (…, d), W_1 (d, hidden), b_1 (hidden), W_2 (hidden, d), b_2 (d); return (…, d)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor,
    W_1: Tensor,
    b_1: Tensor,
    W_2: Tensor,
    b_2: Tensor,
    *,
    activation: str = "hidden",
    biases: bool = True,
    residual: bool = False,
) -> Tensor:
    """Return ReLU(x W_1 + b_1) W_2 + b_2."""
    hidden = X @ W_1 + (b_1 if biases else 0.0)
    hidden = torch.relu(hidden) if activation in ("hidden", "both") else hidden
    y = hidden @ W_2 + (b_2 if biases else 0.0)
    y = torch.relu(y) if activation in ("end", "both") else y
    return X + y if residual else y


def cases(draw: Draw) -> Iterator[Case]:
    for label, shape in (("one sentence", (3, 4)), ("a batch of sentences", (2, 3, 4))):
        yield Case(label, (draw(*shape), draw(4, 8), draw(8), draw(8, 4), draw(4)))


EXERCISE = CodeExercise(
    question="""
        Between two attentions, each token passes through the same small net, on its own:

            FFN(x) = ReLU(x W_1 + b_1) W_2 + b_2

        Write it for tokens with any leading dimensions. The residual connection is not part of it.
    """,
    function="feed_forward",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "no-relu",
            "The ReLU is missing.",
            "Two linear maps in a row are one linear map: the hidden units would be of no use.",
            activation="none",
        ),
        mistake(
            "relu-at-the-end",
            "The ReLU is applied to the output instead of the hidden units.",
            "The block could then only add to a feature, never subtract.",
            activation="end",
        ),
        mistake(
            "relu-twice",
            "There is a second ReLU on the output.",
            "The block could then only add to a feature, never subtract.",
            activation="both",
        ),
        mistake(
            "no-biases",
            "The biases are missing.",
            "Without b_1, every ReLU bends at zero. (One of the lectures leaves them out; this formula has them.)",
            biases=False,
        ),
        mistake(
            "residual-included",
            "The input is added to the result.",
            "That is the block's residual connection; added here as well, it would count twice.",
            residual=True,
        ),
    ),
)
