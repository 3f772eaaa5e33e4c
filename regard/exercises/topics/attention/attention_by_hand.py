"""Compute scaled dot-product attention for one query by hand (D6, D9)."""

from __future__ import annotations

import math

import torch

from regard.exercises.exercise import NumberExercise, mistake

QUERY = torch.tensor([1.0, 2.0])
KEYS = torch.tensor([[2.0, 0], [0, 1], [1, 1]])
VALUES = torch.tensor([[1.0, 0], [0, 4], [2, 2]])


def reference(
    *, divisor: float = math.sqrt(2), exponential: bool = True, mixed: str = "values", mean: bool = True
) -> dict[str, list[float]]:
    """Return the scores, the weights and the output."""
    scores = KEYS @ QUERY
    scaled = scores / divisor
    weights = torch.softmax(scaled, dim=0) if exponential else scaled / scaled.sum()
    rows = VALUES if mixed == "values" else KEYS
    output = weights @ rows if mean else rows[weights.argmax()]
    return {"scores": scores.tolist(), "weights": weights.tolist(), "output": output.tolist()}


EXERCISE = NumberExercise(
    question="""
        One query attends to three keys, each with a value:

            q   = (1, 2)
            k_1 = (2, 0)    v_1 = (1, 0)
            k_2 = (0, 1)    v_2 = (0, 4)
            k_3 = (1, 1)    v_3 = (2, 2)

        a) Compute the three scores q · k, not scaled yet.
        b) Compute the weights: the softmax of the scores divided by √d_k, where d_k = 2 is the width of a key.
        c) Compute the output: the mean of the values with these weights.

        Two decimals are enough. You may use exp(-1/√2) = 0.493.
    """,
    answers={
        "scores": "a) three numbers, such as [1, 2, 3]",
        "weights": "b) three numbers",
        "output": "c) two numbers",
    },
    reference=reference,
    tolerance=0.012,
    mistakes=(
        mistake(
            "no-scale",
            "The scores are not divided by √d_k.",
            "Dot products grow with the width of the keys; unscaled, one of many wide keys gets all the weight.",
            divisor=1.0,
        ),
        mistake(
            "scaled-by-width",
            "The scores are divided by d_k instead of √d_k.",
            "The standard deviation of a dot product is √d_k; divided by d_k, all wide keys get the same weight.",
            divisor=2.0,
        ),
        mistake(
            "no-exponential",
            "The weights are the scores divided by their sum, without the exponential.",
            "With negative scores such weights would be negative; the softmax takes the exponential first.",
            exponential=False,
        ),
        mistake(
            "keys-as-values",
            "The output is a mean of the keys instead of the values.",
            "Keys decide where to attend, values what is read there. They need not even have the same width.",
            mixed="keys",
        ),
        mistake(
            "only-the-best-value",
            "The output is the value of the best key, not the weighted mean.",
            "Attention mixes all values. Taking only the best one has no gradient for the scores.",
            mean=False,
        ),
    ),
)
