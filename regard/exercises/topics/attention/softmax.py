"""Write a softmax that does not overflow (D1)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def softmax(scores: Tensor) -> Tensor:
    """Scores (…, n); return weights (…, n), each row a distribution over its n keys."""
    raise NotImplementedError
'''


def reference(
    scores: Tensor, *, axis: int | None = -1, stable: bool = True, exponential: bool = True, normalize: bool = True
) -> Tensor:
    """Return the weights of each row."""
    axes = tuple(range(scores.dim())) if axis is None else (axis,)
    if stable:
        scores = scores - scores.amax(axes, keepdim=True)
    powers = torch.exp(scores) if exponential else scores
    return powers / powers.sum(axes, keepdim=True) if normalize else powers


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("two rows", (draw(2, 4),))
    yield Case("a batch of matrices", (draw(2, 3, 5),))
    yield Case("scores around 200", (draw(3, 3) * 10 + 200,))


EXERCISE = CodeExercise(
    question="""
        Write the softmax over the last dimension in plain tensor code, without torch.softmax:

            softmax(s)_k = exp(s_k) / (exp(s_1) + … + exp(s_n))

        The checks also use scores around 200, and exp(200) is larger than the largest float32. What can you subtract
        from all scores of a row without changing its softmax?
    """,
    function="softmax",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "overflow",
            "The exponential overflows for large scores, and inf / inf is nan.",
            "Subtract the maximum of each row first: numerator and denominator shrink by the same factor.",
            stable=False,
        ),
        mistake(
            "wrong-axis",
            "The softmax goes over the rows, not over the entries of each row.",
            "In attention that normalizes over the queries: each query must divide its weight among the keys.",
            axis=-2,
        ),
        mistake(
            "all-together",
            "The whole tensor is normalized at once.",
            "Every row is a distribution of its own and sums to one; dim=-1 with keepdim=True does that.",
            axis=None,
        ),
        mistake(
            "no-exponential",
            "The exponential is missing.",
            "Scores can be negative; the exponential makes every weight positive.",
            exponential=False,
        ),
        mistake(
            "not-normalized",
            "The exponentials are not divided by their sum.",
            "The weights of a row must sum to one, else attention is no mean of the values.",
            normalize=False,
        ),
    ),
)
