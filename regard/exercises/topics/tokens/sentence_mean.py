"""Turn a sentence into one vector: the mean of its tokens (A3)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def sentence_vectors(X: Tensor, mask: Tensor) -> Tensor:
    """Token vectors X (B, n, d), mask (B, n), True at real tokens; return a vector per sentence (B, d)."""
    raise NotImplementedError
'''


def reference(X: Tensor, mask: Tensor, *, how: str = "mean") -> Tensor:
    """Return the mean of the real tokens."""
    real = (X * mask.unsqueeze(-1)).sum(1)
    return {
        "mean": lambda: real / mask.sum(1, keepdim=True),
        "all tokens": lambda: X.mean(1),
        "zeroed": lambda: real / X.shape[1],
        "sum": lambda: real,
        "features": lambda: X.mean(2),
        "batch": lambda: real / mask.sum(),
        "inverted": lambda: (X * ~mask.unsqueeze(-1)).sum(1) / (~mask).sum(1, keepdim=True),
    }[how]()


def cases(draw: Draw) -> Iterator[Case]:
    for label, lengths in (("one sentence", [3]), ("sentences of different length", [4, 1, 2])):
        mask = torch.arange(5) < torch.tensor(lengths)[:, None]
        yield Case(label, (draw(len(lengths), 5, 3), mask))


EXERCISE = CodeExercise(
    question="""
        The simplest vector of a sentence is the mean of the vectors of its tokens. In a batch, short sentences are
        padded, and padding has a vector like any other token. Take the mean over the real tokens only.
    """,
    function="sentence_vectors",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "padding-in-the-mean",
            "The padding is part of the mean.",
            "The vector of a sentence then depends on the longest sentence of the batch it happens to be in.",
            how="all tokens",
        ),
        mistake(
            "divided-by-the-padded-length",
            "The padding is set to zero, but the sum is divided by the padded length.",
            "Short sentences get short vectors: divide by the number of real tokens.",
            how="zeroed",
        ),
        mistake(
            "sum",
            "The vectors are added, not averaged.",
            "Long sentences get long vectors, and a dot product then compares lengths more than meanings.",
            how="sum",
        ),
        mistake(
            "mean-over-features",
            "The mean goes over the features instead of the tokens.",
            "It leaves one number per token; wanted is one vector per sentence.",
            how="features",
        ),
        mistake(
            "divided-by-all-tokens",
            "Each sum is divided by the number of real tokens of the whole batch.",
            "Each sentence has a length of its own: sum the mask over dimension 1 only, with keepdim=True.",
            how="batch",
        ),
        mistake(
            "mask-inverted",
            "The mean is that of the padding.",
            "The mask is True at real tokens.",
            how="inverted",
        ),
    ),
)
