"""Sample from the nucleus (Holtzman et al. 2020; E10)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities (V) of the next token; return those to sample from (V), zero outside the nucleus."""
    raise NotImplementedError
'''


def reference(
    probabilities: Tensor, top_p: float, *, crossing: bool = True, normalize: bool = True, order: str = "restored"
) -> Tensor:
    """Return the smallest set of most probable tokens that reaches top_p, normalized."""
    ranked, index = probabilities.sort(descending=order != "ascending")
    reached = ranked.cumsum(0)
    before = reached - ranked if crossing else reached
    inside = ranked * (before < top_p)
    kept = inside if order == "sorted" else torch.zeros_like(probabilities).scatter(0, index, inside)
    return kept / kept.sum() if normalize else kept


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a nucleus of three tokens", (torch.tensor([0.05, 0.4, 0.1, 0.25, 0.2]), 0.7))
    yield Case("a nucleus of one token", (torch.tensor([0.1, 0.1, 0.75, 0.05]), 0.6))
    yield Case("a larger vocabulary", (torch.softmax(draw(20) * 2, 0), 0.9))


EXERCISE = CodeExercise(
    question="""
        Nucleus sampling, or top-p, draws only from the most probable tokens: the smallest set whose probabilities sum
        to at least top_p. The token with which the sum reaches top_p belongs to the set, so there is always one. All
        others get probability 0, and those in the set are divided by their sum.

        The result has the order of the vocabulary, not that of the probabilities.
    """,
    function="nucleus",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "crossing-token-excluded",
            "The token with which the sum reaches top_p is left out.",
            "If the most probable token alone reaches top_p, nothing would be left to draw from.",
            crossing=False,
        ),
        mistake(
            "not-normalized",
            "The probabilities of the nucleus are not divided by their sum.",
            "What is left must be a distribution again, before one draws from it.",
            normalize=False,
        ),
        mistake(
            "sorted-order",
            "The result is in the order of the probabilities, not in that of the vocabulary.",
            "Each probability must stand at the number of its token: scatter the sorted values back.",
            order="sorted",
        ),
        mistake(
            "least-probable-first",
            "The set is filled with the least probable tokens first.",
            "Sort in descending order: the nucleus has the most probable tokens.",
            order="ascending",
        ),
    ),
)
