"""Find the nearest words by cosine similarity (A2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def nearest(table: Tensor, word: int, count: int) -> list[int]:
    """Word vectors (V, d); return the `count` words most similar to `word` by cosine, the nearest first."""
    raise NotImplementedError
'''


def reference(
    table: Tensor, word: int, count: int, *, similarity: str = "cosine", itself: bool = False, largest: bool = True
) -> list[int]:
    """Return the words with the largest cosine, without the word itself."""
    vector = table[word]
    scores = table @ vector
    if similarity == "cosine":
        scores = scores / (table.norm(dim=1) * vector.norm())
    elif similarity == "distance":
        scores = -(table - vector).norm(dim=1)
    order = [int(i) for i in scores.argsort(descending=largest) if itself or int(i) != word]
    return order[:count]


def cases(draw: Draw) -> Iterator[Case]:
    lengths = torch.tensor([0.2, 5.0, 1.0, 3.0, 0.5, 2.0, 8.0, 1.0])[:, None]
    yield Case("vectors of different length", (draw(8, 4) * lengths, 2, 3))
    yield Case("another word", (draw(8, 4) * lengths, 4, 5))


EXERCISE = CodeExercise(
    question="""
        Which words are most similar to a word? The usual measure is the cosine of the angle between their vectors:

            cos(u, v) = u · v / (|u| |v|)

        Return the numbers of the `count` nearest words, the nearest first, without the word itself.
    """,
    function="nearest",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "dot-product",
            "The words are ordered by the dot product, without dividing by the lengths.",
            "Frequent words have long vectors, and would be near to everything.",
            similarity="dot",
        ),
        mistake(
            "distance",
            "The words are ordered by the distance of their vectors.",
            "Vectors in the same direction can be far apart when one is long; the cosine ignores the length.",
            similarity="distance",
        ),
        mistake(
            "word-itself",
            "The word itself is in the list.",
            "Its cosine is 1, so it always comes first and tells nothing.",
            itself=True,
        ),
        mistake(
            "farthest",
            "The least similar words come first.",
            "argsort sorts in ascending order unless told otherwise.",
            largest=False,
        ),
    ),
)
