"""Write attention that is linear in the length (F3)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def linear_attention(phi_Q: Tensor, phi_K: Tensor, V: Tensor) -> Tensor:
    """φ(Q) (m, M), φ(K) (n, M), all positive, V (n, d_v); return the output (m, d_v)."""
    raise NotImplementedError
'''


def reference(phi_Q: Tensor, phi_K: Tensor, V: Tensor, *, normalizer: str = "queries") -> Tensor:
    """Return D⁻¹ φ(Q) (φ(K)ᵀ V) with D = diag(φ(Q) φ(K)ᵀ 1)."""
    weights = phi_Q @ phi_K.T
    if normalizer == "softmax":
        return weights.softmax(-1) @ V
    divisors: dict[str, Tensor | float] = {
        "queries": weights.sum(1, keepdim=True),
        "keys": weights.sum(0, keepdim=True),
        "none": 1.0,
        "length": float(len(V)),
        "all": weights.sum(),
    }
    return weights / divisors[normalizer] @ V


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("as many queries as keys", (draw(4, 6).abs(), draw(4, 6).abs(), draw(4, 3)))
    yield Case("more keys than queries", (draw(3, 8).abs(), draw(7, 8).abs(), draw(7, 2)))


EXERCISE = CodeExercise(
    question="""
        If exp(q · k) is nearly φ(q) · φ(k), then attention is

            Y = D⁻¹ φ(Q) (φ(K)ᵀ V)        D = diag(φ(Q) φ(K)ᵀ 1)

        The diagonal matrix D divides each row by the sum of its weights. Write it so that no n × n matrix is computed:
        then time and memory grow linearly with the length.
    """,
    function="linear_attention",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "no-normalizer",
            "The division by D is missing.",
            "The weights of a row do not sum to one, and the output grows with the length of the text.",
            normalizer="none",
        ),
        mistake(
            "normalized-over-queries",
            "The weights are divided by the sums of their columns: each key is normalized over the queries.",
            "D has an entry for each query: the sum of its weights over all keys.",
            normalizer="keys",
        ),
        mistake(
            "divided-by-the-length",
            "The output is divided by the number of keys instead of the sum of the weights.",
            "The weights are not all 1, so their sum is not n.",
            normalizer="length",
        ),
        mistake(
            "softmax-again",
            "A softmax is applied to φ(Q) φ(K)ᵀ.",
            "φ(q) · φ(k) stands for the exponential already; it needs only to be divided by its sum.",
            normalizer="softmax",
        ),
        mistake(
            "one-sum-for-all",
            "All rows are divided by the sum of all weights.",
            "Each query has a sum of its own.",
            normalizer="all",
        ),
    ),
)
