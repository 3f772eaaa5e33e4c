"""Write the biases of ALiBi (Press et al. 2022; B8)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def alibi(heads: int, n: int) -> Tensor:
    """Return the biases (heads, n, n) that are added to the scores; heads is a power of two."""
    raise NotImplementedError
'''


def reference(
    heads: int, n: int, *, sign: int = -1, first: int = 1, slopes: str = "geometric", reverse: bool = False
) -> Tensor:
    """Return -m_h |k - q|, with m_h = 2^(-8 h / heads) for h = 1 … heads."""
    h = torch.arange(first, first + heads)
    m = {"geometric": 2.0 ** (-8 * h / heads), "one": torch.ones(heads), "linear": h / heads}[slopes]
    m = m.flip(0) if reverse else m
    distance = (torch.arange(n) - torch.arange(n)[:, None]).abs()
    return sign * m[:, None, None] * distance


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("eight heads", (8, 4))
    yield Case("two heads", (2, 6))


EXERCISE = CodeExercise(
    question="""
        ALiBi needs no position vectors. It lowers the score of a key in proportion to its distance from the query:

            bias_h(q, k) = -m_h |q - k|        m_h = 2^(-8h / heads),  h = 1, …, heads

        With 8 heads the slopes m_h are 1/2, 1/4, …, 1/256: some heads see the neighbourhood, others nearly everything.
        Write the biases of all heads.
    """,
    function="alibi",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "positive",
            "The sign is missing: distant keys get higher scores.",
            "Each head would look as far away as it can.",
            sign=1,
        ),
        mistake(
            "heads-from-zero",
            "The heads are counted from 0, so the first slope is 1.",
            "The formula counts from 1; with 8 heads the slopes start at 1/2.",
            first=0,
        ),
        mistake(
            "same-slope",
            "All heads have the slope 1.",
            "The heads then all see the same short neighbourhood.",
            slopes="one",
        ),
        mistake(
            "linear-slopes",
            "The slopes are h / heads.",
            "They are powers of two, so that the ranges of the heads grow from a few words to hundreds.",
            slopes="linear",
        ),
        mistake(
            "heads-reversed",
            "The slopes are in the reverse order.",
            "The first head has the steepest slope. Trained weights belong to their heads.",
            reverse=True,
        ),
    ),
)
