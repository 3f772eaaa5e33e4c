"""Let a decoder attend to an encoder (D13)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import math

import torch
from torch import Tensor


def cross_attention(Y: Tensor, X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor) -> Tensor:
    """Y (m, d) from the decoder, X (n, d) from the encoder, matrices (d, d); return the output (m, d)."""
    raise NotImplementedError
'''


def reference(
    Y: Tensor,
    X: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    *,
    roles: str = "queries from Y",
    scale: bool = True,
    axis: int = -1,
) -> Tensor:
    """Return the attention of Y's queries to X's keys and values."""
    queries, keys, values = {
        "queries from Y": (Y, X, X),
        "swapped": (X, Y, Y),
        "values from Y": (Y, X, Y),
        "self": (Y, Y, Y),
    }[roles]
    scores = (queries @ W_q) @ (keys @ W_k).T
    scores = scores / math.sqrt(W_k.shape[1]) if scale else scores
    return torch.softmax(scores, dim=axis) @ (values @ W_v)


def cases(draw: Draw) -> Iterator[Case]:
    for label, m, n in (("equal lengths", 4, 4), ("a longer source", 3, 5), ("a longer target", 5, 2)):
        yield Case(label, (draw(m, 6), draw(n, 6), draw(6, 6), draw(6, 6), draw(6, 6)))


EXERCISE = CodeExercise(
    question="""
        In a translator, each target position asks which source words it needs. Write this attention with one head:

            softmax((Y W_q) (X W_k)ᵀ / √d) (X W_v)

        in words: the queries come from the decoder (Y), the keys and the values from the encoder (X). The matrix of
        weights is m × n: a row for each target position, a column for each source word.
    """,
    function="cross_attention",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "roles-swapped",
            "The queries come from the encoder, the keys and values from the decoder.",
            "The output must have a row for each target position; here it has one for each source word.",
            roles="swapped",
        ),
        mistake(
            "values-from-decoder",
            "The values come from the decoder.",
            "It works only for equal lengths, and then the decoder reads itself at the places of source words.",
            roles="values from Y",
        ),
        mistake(
            "self-attention",
            "Queries, keys and values all come from the decoder.",
            "That is self-attention: the decoder never sees the source, and translates nothing.",
            roles="self",
        ),
        mistake(
            "no-scale",
            "The scores are not divided by √d.",
            "Dot products grow with the width; unscaled, the softmax gives one word everything.",
            scale=False,
        ),
        mistake(
            "softmax-over-queries",
            "The softmax goes over the target positions instead of the source words.",
            "Each target position must divide a weight of one among the source words.",
            axis=-2,
        ),
    ),
)
