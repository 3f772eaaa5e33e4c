"""Compute a perplexity by hand (E10)."""

from __future__ import annotations

import math

from regard.exercises.exercise import NumberExercise, mistake

PROBABILITIES = (1 / 2, 1 / 4, 1 / 8, 1 / 4)


def reference(*, how: str = "geometric", base: float = 2.0) -> dict[str, float]:
    """Return the bits per token and the perplexity."""
    bits = -sum(math.log2(p) for p in PROBABILITIES)
    if how == "summed":
        return {"bits": bits, "perplexity": 2**bits}
    if how == "arithmetic":
        mean = sum(1 / p for p in PROBABILITIES) / len(PROBABILITIES)
        return {"bits": math.log2(mean), "perplexity": mean}
    bits /= len(PROBABILITIES)
    return {"bits": bits, "perplexity": base**bits}


EXERCISE = NumberExercise(
    question="""
        A language model gives the four tokens of a text the probabilities 1/2, 1/4, 1/8 and 1/4. Compute

        a) the bits per token: the mean of -log₂ p,
        b) the perplexity: 2 to the power of the bits per token. A model that guesses among as many words, all equally
           likely, would be as unsure.
    """,
    answers={"bits": "a) a number", "perplexity": "b) a number"},
    reference=reference,
    mistakes=(
        mistake(
            "not-averaged",
            "The bits are added, not averaged over the tokens.",
            "The perplexity of a long text would be huge: it is a measure per token.",
            how="summed",
        ),
        mistake(
            "arithmetic-mean",
            "The perplexity is the arithmetic mean of 1/p.",
            "Probabilities multiply, so the mean is taken of their logarithms: the geometric mean.",
            how="arithmetic",
        ),
        mistake(
            "bases-mixed",
            "The bits are raised to base e.",
            "Bits belong to base 2 and nats to base e; mixed, the number has no meaning.",
            base=math.e,
        ),
    ),
)
