"""Compute the cross-entropy of a sentence by hand (E7)."""

from __future__ import annotations

import math

from regard.exercises.exercise import NumberExercise, mistake

PROBABILITIES = (0.5, 0.25)
PADDING = 0.125


def reference(
    *, padding: bool = False, base: float = math.e, mean: bool = True, order: str = "log first"
) -> dict[str, float]:
    """Return the mean negative log-probability of the real tokens."""
    probabilities = (*PROBABILITIES, PADDING) if padding else PROBABILITIES
    if order == "mean first":
        return {"loss": -math.log(sum(probabilities) / len(probabilities), base)}
    total = -sum(math.log(p, base) for p in probabilities)
    return {"loss": total / len(probabilities) if mean else total}


EXERCISE = NumberExercise(
    question="""
        A decoder should write "sleeps" and then the end token; the row is filled up with one padding token. The model
        gives these three tokens the probabilities 0.5, 0.25 and 0.125 (the last one is that of the padding). Compute
        the loss: the mean of -ln p over the tokens that count. You may use ln 2 = 0.693.
    """,
    answers={"loss": "a number with two or more decimals"},
    reference=reference,
    mistakes=(
        mistake(
            "padding-counted",
            "The padding counts as a third token.",
            "The model would learn to write padding, and the loss would depend on how sentences are batched.",
            padding=True,
        ),
        mistake(
            "base-two",
            "The logarithm has base 2.",
            "That is the loss in bits. Here it is in nats, so that exp(loss) is the perplexity.",
            base=2.0,
        ),
        mistake(
            "summed",
            "The losses of the tokens are added, not averaged.",
            "Long sentences would count more, and learning rates depend on the length.",
            mean=False,
        ),
        mistake(
            "log-of-the-mean",
            "It is the logarithm of the mean probability.",
            "Take the logarithm first: the probability of a sentence is a product, so its logarithm is a sum.",
            order="mean first",
        ),
    ),
)
