"""Normalize a vector by hand (Ba et al. 2016; E1)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake

X = (2.0, 4.0, 4.0, 6.0)


def reference(*, count: int = 4, root: bool = True, center: bool = True, divide: bool = True) -> dict[str, object]:
    """Return mean, variance and the normalized vector."""
    mean = sum(X) / len(X)
    deviations = [x - mean if center else x for x in X]
    variance = sum(d * d for d in deviations) / count
    divisor = variance**0.5 if root else variance
    return {"mean": mean, "variance": variance, "normalized": [d / divisor if divide else d for d in deviations]}


EXERCISE = NumberExercise(
    question="""
        Layer normalization subtracts the mean of a token's features and divides by their standard deviation, the root
        of the variance. The variance is the mean of the squared deviations (divided by the number p of features).
        Normalize

            x = (2, 4, 4, 6)

        without gain and bias. Two decimals are enough.
    """,
    answers={"mean": "a number", "variance": "a number", "normalized": "four numbers"},
    reference=reference,
    mistakes=(
        mistake(
            "divided-by-p-minus-1",
            "The squared deviations are divided by p - 1.",
            "That estimates the variance of a population from a sample. Here the four features are all there is.",
            count=3,
        ),
        mistake(
            "divided-by-variance",
            "The deviations are divided by the variance instead of its root.",
            "Only the standard deviation has the unit of x: divided by it, the result has variance 1.",
            root=False,
        ),
        mistake(
            "not-divided",
            "The deviations are not divided by the standard deviation.",
            "Centering alone leaves tokens of very different size.",
            divide=False,
        ),
        mistake(
            "not-centered",
            "The mean is not subtracted.",
            "Dividing by the root of the mean square is RMSNorm: it is in use, too, but not layer normalization.",
            center=False,
        ),
    ),
)
