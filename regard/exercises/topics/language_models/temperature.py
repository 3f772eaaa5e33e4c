"""Sample with a temperature (E10)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def with_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Logits (V) and a temperature > 0; return the probabilities to sample from (V)."""
    raise NotImplementedError
'''


def reference(logits: Tensor, temperature: float, *, how: str = "divide") -> Tensor:
    """Return softmax(logits / temperature)."""
    p = torch.softmax(logits, -1)
    return {
        "divide": torch.softmax(logits / temperature, -1),
        "multiply": torch.softmax(logits * temperature, -1),
        "probabilities": p / temperature,
        "twice": torch.softmax(p / temperature, -1),
        "ignored": p,
    }[how]


def cases(draw: Draw) -> Iterator[Case]:
    for label, temperature in (("a low temperature", 0.5), ("temperature 1", 1.0), ("a high temperature", 2.0)):
        yield Case(label, (draw(6) * 2, temperature))


EXERCISE = CodeExercise(
    question="""
        A temperature makes sampling more careful (below 1) or more daring (above 1): the probabilities are
        softmax(logits / temperature). Write it.
    """,
    function="with_temperature",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "multiplied",
            "The logits are multiplied by the temperature instead of divided.",
            "A low temperature should sharpen the distribution; here it flattens it.",
            how="multiply",
        ),
        mistake(
            "probabilities-divided",
            "The probabilities are divided by the temperature, after the softmax.",
            "They no longer sum to one, and their proportions do not change at all.",
            how="probabilities",
        ),
        mistake(
            "softmax-twice",
            "The softmax is taken twice, with the temperature between.",
            "Probabilities are all between 0 and 1, so the second softmax makes them nearly equal.",
            how="twice",
        ),
        mistake(
            "temperature-ignored",
            "The temperature is not used.",
            "The probabilities are always those of temperature 1.",
            how="ignored",
        ),
    ),
)
