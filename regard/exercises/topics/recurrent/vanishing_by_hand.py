"""Compute how a gradient vanishes and explodes, by hand (Bengio et al. 1994; C3)."""

from __future__ import annotations

from regard.exercises.exercise import NumberExercise, mistake


def reference(*, steps: int = 10, how: str = "product") -> dict[str, float]:
    """Return the derivative of h_10 with respect to h_0 for h_t = w h_{t-1} + x_t."""
    weights = {"half": 0.5, "one_and_a_half": 1.5}
    if how == "sum":
        return {name: weight * steps for name, weight in weights.items()}
    if how == "constant":
        return dict(weights)
    return {name: weight**steps for name, weight in weights.items()}


EXERCISE = NumberExercise(
    question="""
        A linear recurrent network with one number as its state computes h_t = w h_{t-1} + x_t. By the chain rule, the
        derivative of h_10 with respect to h_0 is a product with a factor for each step. Compute it

        a) for w = 0.5   (four decimals, please),
        b) for w = 1.5   (two decimals are enough).

        What does a network learn about a word 10 places earlier in case a), and what happens to its weights in case b)?
    """,
    answers={"half": "a) a number", "one_and_a_half": "b) a number"},
    reference=reference,
    tolerance=0.0003,
    mistakes=(
        mistake(
            "one-step-too-few",
            "There are only nine factors.",
            "From h_0 to h_10 there are ten steps, and each has a factor w.",
            steps=9,
        ),
        mistake(
            "one-step-too-many",
            "There are eleven factors.",
            "From h_0 to h_10 there are ten steps.",
            steps=11,
        ),
        mistake(
            "added",
            "The factors are added instead of multiplied.",
            "The chain rule multiplies the derivatives of nested functions; that is why they vanish or explode.",
            how="sum",
        ),
        mistake(
            "only-one-step",
            "It is the derivative of one step.",
            "h_10 depends on h_0 through all ten steps.",
            how="constant",
        ),
    ),
)
