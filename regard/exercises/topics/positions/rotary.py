"""Write rotary positions (Su et al. 2021; B7)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def rotate(X: Tensor) -> Tensor:
    """Queries or keys X (n, d) at positions 0 … n - 1, d even; return them rotated (n, d)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor, *, pairs: str = "adjacent", direction: int = 1, first: int = 0, same: bool = False, add: bool = False
) -> Tensor:
    """Rotate each pair of dimensions by position times its frequency."""
    n, d = X.shape
    frequencies = torch.ones(d // 2) if same else 10000.0 ** (-2 * torch.arange(d // 2) / d)
    angles = direction * torch.arange(first, first + n)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    if add:
        return X + torch.stack([sin, cos], -1).flatten(1)
    if pairs == "halves":
        a, b = X[:, : d // 2], X[:, d // 2 :]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
    a, b = X[:, 0::2], X[:, 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(1)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("width 2", (draw(4, 2),))
    yield Case("width 4", (draw(5, 4),))
    yield Case("width 8", (draw(7, 8),))


EXERCISE = CodeExercise(
    question="""
        Rotary positions turn queries and keys instead of adding something to the embedding. The dimensions form
        adjacent pairs (0, 1), (2, 3), …; at position t, pair i turns by the angle θ = t / 10000^(2i/d):

            (a, b)  →  (a cos θ - b sin θ,  a sin θ + b cos θ)

        After that, the dot product of a query and a key depends on their distance only. Write the rotation for rows at
        positions 0, 1, 2, …
    """,
    function="rotate",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "halves",
            "Dimension i is paired with dimension i + d/2 instead of its neighbour.",
            "Both orders are in use (GPT-NeoX and Llama's port pair halves), and weights work only with their own:"
            " a frequent reason why a converted model talks nonsense.",
            pairs="halves",
        ),
        mistake(
            "backwards",
            "The rotation goes the other way.",
            "Used for queries and keys alike nothing changes, but it does not fit trained weights.",
            direction=-1,
        ),
        mistake(
            "same-angle",
            "All pairs turn by the same angle.",
            "Then the encoding repeats after 2π ≈ 6 positions. Slow pairs tell distant positions apart.",
            same=True,
        ),
        mistake(
            "positions-from-one",
            "The positions are counted from 1.",
            "Here the first row is at position 0 and does not turn.",
            first=1,
        ),
        mistake(
            "added",
            "Sines and cosines are added to the vectors.",
            "That is the sinusoidal encoding. Rotary positions multiply, which keeps the length of each vector.",
            add=True,
        ),
    ),
)
