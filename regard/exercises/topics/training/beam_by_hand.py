"""Search with a beam by hand (E8)."""

from __future__ import annotations

from itertools import pairwise

from regard.exercises.exercise import NumberExercise, mistake

NEXT = {"start": {"a": 0.6, "b": 0.4}, "a": {"x": 0.4, "y": 0.35, "z": 0.25}, "b": {"x": 0.9, "y": 0.05, "z": 0.05}}


def probability(text: str) -> float:
    """Return the probability of two tokens."""
    product = 1.0
    for before, token in pairwise(["start", *text]):
        product *= NEXT[before][token]
    return product


def reference(*, combine: str = "product", greedy: str = "each step") -> dict[str, object]:
    """Return what greedy search and beam search with two hypotheses find."""
    texts = [first + second for first in "ab" for second in "xyz"]
    if combine == "sum":
        score = {text: NEXT["start"][text[0]] + NEXT[text[0]][text[1]] for text in texts}
    elif combine == "last":
        score = {text: NEXT[text[0]][text[1]] for text in texts}
    else:
        score = {text: probability(text) for text in texts}
    ranked = sorted(texts, key=lambda text: score[text], reverse=True)
    step = "ax" if greedy == "each step" else ranked[0]
    return {
        "greedy": step,
        "greedy_probability": score[step],
        "best": ranked[0],
        "best_probability": score[ranked[0]],
        "second": ranked[1],
    }


EXERCISE = NumberExercise(
    question="""
        A model writes two tokens. The probabilities of the first, and of the second after each first:

            first:     a 0.6   b 0.4
            after a:   x 0.4   y 0.35  z 0.25
            after b:   x 0.9   y 0.05  z 0.05

        The probability of a text is the product of its steps.

        a) Which text does greedy search write, and what is its probability?
        b) Which two texts are in the beam of beam search with two hypotheses after the second step: the best one, its
           probability, and the second best?
    """,
    answers={
        "greedy": 'a) a text, such as "bz"',
        "greedy_probability": "a) a number",
        "best": "b) a text",
        "best_probability": "b) a number",
        "second": "b) a text",
    },
    reference=reference,
    mistakes=(
        mistake(
            "greedy-looks-ahead",
            "Greedy search is given the best text.",
            "Greedy search takes the most probable token at each step: after a, it can no longer reach b.",
            greedy="best",
        ),
        mistake(
            "added",
            "The probabilities are added instead of multiplied.",
            "The steps are all needed, so their probabilities multiply; programs add their logarithms.",
            combine="sum",
        ),
        mistake(
            "last-step-only",
            "Only the probability of the last step counts.",
            "A hypothesis carries the score of all its steps; else a bad beginning is forgiven.",
            combine="last",
        ),
    ),
)
