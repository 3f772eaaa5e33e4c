"""Copy words with a pointer-generator (See et al. 2017; G3)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def with_copying(generate: Tensor, attention: Tensor, source: Tensor, gate: float) -> Tensor:
    """Distribution over the vocabulary (V), attention (n) to the source words (n, numbers); return the mixture (V)."""
    raise NotImplementedError
'''


def reference(
    generate: Tensor,
    attention: Tensor,
    source: Tensor,
    gate: float,
    *,
    swap: bool = False,
    repeats: str = "added",
    where: str = "words",
    mix: bool = True,
) -> Tensor:
    """Return gate * generate + (1 - gate) * attention, added up per word."""
    copy = torch.zeros_like(generate)
    if where == "places":
        copy[: len(attention)] = attention
    elif repeats == "added":
        copy.index_add_(0, source, attention)
    else:
        for word, weight in zip(source.tolist(), attention, strict=True):
            copy[word] = weight
    gate = 1 - gate if swap else gate
    return gate * generate + (1 - gate) * copy if mix else generate + copy


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("different words", (draw(8).softmax(0), draw(3).softmax(0), torch.tensor([5, 2, 7]), 0.8))
    source = torch.tensor([4, 1, 4, 6, 1])
    yield Case("a word that occurs twice", (draw(9).softmax(0), draw(5).softmax(0), source, 0.3))


EXERCISE = CodeExercise(
    question="""
        A summarizer should be able to copy names that it could never generate. A pointer-generator mixes two
        distributions with a gate between 0 and 1:

            p(word) = gate · p_generate(word) + (1 - gate) · Σ attention to the places of the word in the source

        Return the mixture over the vocabulary.
    """,
    function="with_copying",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "repeats-overwritten",
            "If a word occurs twice in the source, only its last attention counts.",
            "Assigning with an index overwrites: use index_add_ or scatter_add_. The result must sum to one.",
            repeats="last",
        ),
        mistake(
            "gate-reversed",
            "The gate is reversed: it weighs the copy.",
            "Here a gate of 1 means to generate only.",
            swap=True,
        ),
        mistake(
            "places-instead-of-words",
            "The attention is added at the places of the source, not at the numbers of its words.",
            "Place 0 is not word 0: look up which word stands there.",
            where="places",
        ),
        mistake(
            "not-mixed",
            "The two distributions are added without the gate.",
            "The result sums to two.",
            mix=False,
        ),
    ),
)
