"""Count words: the bag of words (A2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def bag_of_words(ids: Tensor, size: int, pad: int) -> Tensor:
    """Texts as word numbers (B, n), padded with `pad`; return how often each of `size` words occurs (B, size)."""
    raise NotImplementedError
'''


def reference(
    ids: Tensor, size: int, pad: int, *, presence: bool = False, padding: bool = False, mean: bool = False
) -> Tensor:
    """Return the counts of the words, without padding."""
    counts = torch.zeros(len(ids), size)
    counts.scatter_add_(1, ids, torch.ones(ids.shape))
    if not padding:
        counts[:, pad] = 0
    if presence:
        counts = (counts > 0).float()
    return counts / counts.sum(1, keepdim=True) if mean else counts


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a text with a repeated word", (torch.tensor([[3, 1, 3, 2]]), 5, 0))
    yield Case("two texts, one of them padded", (torch.tensor([[1, 1, 4, 2], [2, 3, 0, 0]]), 5, 0))
    yield Case("padding with another number", (torch.tensor([[0, 2, 2, 5], [0, 5, 5, 5]]), 6, 5))


EXERCISE = CodeExercise(
    question="""
        The bag of words of a text says how often each word of the vocabulary occurs, and forgets the order. Write it
        for a batch of texts. The number `pad` fills up short texts; it is no word, and its count is always 0.

        Try to do it without a loop over the words: a sum of one-hot rows, or scatter_add_.
    """,
    function="bag_of_words",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "presence",
            "A word that occurs twice is counted once.",
            "Often assigning 1 causes it: counts[row, ids] = 1 keeps no count. The number of occurrences matters.",
            presence=True,
        ),
        mistake(
            "padding-counted",
            "The padding is counted, too.",
            "Then short texts look alike because of their padding, not because of their words.",
            padding=True,
        ),
        mistake(
            "frequencies",
            "The counts are divided by the length of the text.",
            "That gives frequencies. It is useful, too, but another thing.",
            mean=True,
        ),
    ),
)
