"""Estimate a bigram model with add-one smoothing (C2)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def bigram(text: list[int], size: int) -> Tensor:
    """Return the probabilities (size, size): row i is the distribution of the token after token i."""
    raise NotImplementedError
'''


def reference(text: list[int], size: int, *, axis: int = 1, smooth: float = 1.0, swap: bool = False) -> Tensor:
    """Return the counts of neighbours plus one, each row divided by its sum."""
    counts = torch.full((size, size), smooth)
    for before, after in pairwise(text):
        counts[(after, before) if swap else (before, after)] += 1
    return counts / (counts.sum() if axis == 2 else counts.sum(axis, keepdim=True))


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a short text", ([0, 1, 1, 2, 0, 1], 3))
    yield Case("tokens that do not occur", ([3, 1, 3, 3, 1, 0, 3], 5))


EXERCISE = CodeExercise(
    question="""
        The simplest language model knows one token of context: it counts how often token j follows token i. Return
        these counts as probabilities. Add 1 to every count first, so that no pair is impossible, then divide each row
        by its sum.
    """,
    function="bigram",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "columns-normalized",
            "The columns sum to one instead of the rows.",
            "Column j then says what came before j. To generate, you need what comes after i.",
            axis=0,
        ),
        mistake(
            "all-together",
            "The whole table sums to one.",
            "Those are the probabilities of pairs. Each row must be a distribution: the next token, given this one.",
            axis=2,
        ),
        mistake(
            "not-smoothed",
            "The 1 is not added.",
            "A pair that was not seen has probability 0, and one such pair makes a text's perplexity infinite.",
            smooth=0.0,
        ),
        mistake(
            "direction",
            "Rows and columns are exchanged when counting.",
            "Row i belongs to the token before, column j to the one after.",
            swap=True,
        ),
    ),
)
