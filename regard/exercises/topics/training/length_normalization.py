"""Choose among finished hypotheses of different length (Wu et al. 2016; E8)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def normalized_scores(logp: list[Tensor], alpha: float) -> list[float]:
    """Log-probabilities of the tokens of each hypothesis; return the score of each hypothesis."""
    raise NotImplementedError
'''


def reference(
    logp: list[Tensor], alpha: float, *, how: str = "divide", shift: int = 0, probability: bool = False
) -> list[float]:
    """Return the sum of the log-probabilities divided by length^alpha."""
    scores = []
    for tokens in logp:
        total, length = tokens.sum().item(), len(tokens) + shift
        total = tokens.exp().sum().item() if probability else total
        penalty = {"divide": 1 / length**alpha, "multiply": length**alpha, "none": 1.0, "mean": 1 / length}[how]
        scores.append(total * penalty)
    return scores


def cases(draw: Draw) -> Iterator[Case]:
    hypotheses = [-draw(n).abs() for n in (3, 6, 2)]
    yield Case("alpha 0.6", (hypotheses, 0.6))
    yield Case("alpha 1", (hypotheses, 1.0))
    yield Case("alpha 0, which ignores the length", (hypotheses, 0.0))


EXERCISE = CodeExercise(
    question="""
        A longer hypothesis has more factors below one, so the sum of its log-probabilities is lower, and beam search
        prefers short outputs. Dividing by a power of the length makes up for it:

            score = Σ log p / length^alpha

        The length is the number of tokens, all of which are given. Return the score of each hypothesis.
    """,
    function="normalized_scores",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-normalized",
            "The scores are not divided by the length.",
            "Beam search then prefers outputs that stop early; the wider the beam, the shorter they get.",
            how="none",
        ),
        mistake(
            "multiplied",
            "The scores are multiplied by length^alpha instead of divided.",
            "Log-probabilities are negative: multiplied, long hypotheses get even lower.",
            how="multiply",
        ),
        mistake(
            "alpha-ignored",
            "The scores are divided by the length itself, whatever alpha is.",
            "alpha sets how much long outputs are helped: 0 is not at all, 1 is the mean.",
            how="mean",
        ),
        mistake(
            "start-token-counted",
            "The length is one too large: it counts the start token.",
            "The start token has no probability; short hypotheses would be helped more than long ones.",
            shift=1,
        ),
        mistake(
            "probabilities-added",
            "The probabilities are added instead of their logarithms.",
            "A sum of probabilities grows with the length, whatever the words are.",
            probability=True,
        ),
    ),
)
