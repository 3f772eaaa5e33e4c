"""Compute a softmax by hand, also with a masked score (D1, D10)."""

from __future__ import annotations

import math

from regard.exercises.exercise import NumberExercise, mistake

SCORES = (0.0, 1.0, 2.0)


def reference(
    *, exponential: bool = True, normalize: bool = True, hard: bool = False, masked: str = "before"
) -> dict[str, list[float]]:
    """Return the weights of all three keys, and those when the third key is masked."""

    def softmax(scores: tuple[float, ...]) -> list[float]:
        if hard:
            return [float(score == max(scores)) for score in scores]
        powers = [math.exp(score) if exponential else max(score, 0.0) for score in scores]
        return [power / sum(powers) if normalize else power for power in powers]

    weights = softmax(SCORES)
    third = {"before": -math.inf, "zero": 0.0, "after": SCORES[2]}[masked]
    masked_weights = softmax((*SCORES[:2], third))
    if masked == "after":
        masked_weights[2] = 0.0
    return {"weights": weights, "masked": masked_weights}


EXERCISE = NumberExercise(
    question="""
        A query compares itself with three keys; the scores are 0, 1 and 2. The softmax turns scores s_1 … s_n into
        weights exp(s_k) / (exp(s_1) + … + exp(s_n)), which are positive and sum to one.

        a) Compute the three weights.
        b) The third key is padding, so its score becomes minus infinity before the softmax. Compute the weights again.

        You may use e = 2.718 and e² = 7.389. Two decimals are enough.
    """,
    answers={"weights": "a) three numbers, such as [0.1, 0.2, 0.7]", "masked": "b) three numbers"},
    reference=reference,
    mistakes=(
        mistake(
            "no-exponential",
            "The scores are divided by their sum, without the exponential.",
            "Scores can be negative or sum to zero; only the exponential makes every weight positive.",
            exponential=False,
        ),
        mistake(
            "not-normalized",
            "The exponentials are not divided by their sum.",
            "The weights must sum to one: attention is a weighted mean of the values, not a sum that grows with n.",
            normalize=False,
        ),
        mistake(
            "hard-maximum",
            "The largest score takes all the weight.",
            "That is the maximum. The softmax is soft: it gives every key some weight, and so a gradient.",
            hard=True,
        ),
        mistake(
            "masked-with-zero",
            "The masked score is 0 instead of minus infinity.",
            "exp(0) is 1, so the padding still gets weight; exp(-∞) is 0.",
            masked="zero",
        ),
        mistake(
            "masked-after-softmax",
            "The weight of the masked key is set to 0 after the softmax.",
            "The other two no longer sum to one. Mask the score before the softmax, and the rest is normalized.",
            masked="after",
        ),
    ),
)
