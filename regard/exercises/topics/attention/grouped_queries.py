"""Let several query heads share a key head (grouped-query attention, Ainslie et al. 2023; D11)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import math

import torch
from torch import Tensor


def grouped_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Q (H, m, d), K and V (G, n, d) with H a multiple of G; return the output (H, m, d)."""
    raise NotImplementedError
'''


def reference(Q: Tensor, K: Tensor, V: Tensor, *, order: str = "groups", scale: bool = True) -> Tensor:
    """Return attention in which each group of H / G consecutive query heads shares a key and value head."""
    times = Q.shape[0] // K.shape[0]

    def spread(Z: Tensor) -> Tensor:
        if order == "first":
            return Z[:1].expand(Q.shape[0], -1, -1)
        return Z.repeat(times, 1, 1) if order == "round robin" else Z.repeat_interleave(times, dim=0)

    scores = Q @ spread(K).transpose(-2, -1) / (math.sqrt(Q.shape[-1]) if scale else 1.0)
    return torch.softmax(scores, dim=-1) @ spread(V)


def cases(draw: Draw) -> Iterator[Case]:
    for label, H, G in (
        ("as many key heads as query heads", 2, 2),
        ("one key head for all", 4, 1),
        ("two groups", 6, 2),
    ):
        yield Case(label, (draw(H, 3, 4), draw(G, 5, 4), draw(G, 5, 4)))


EXERCISE = CodeExercise(
    question="""
        Large language models keep fewer key and value heads than query heads, so that the cache is smaller. With H
        query heads and G key heads, each group of H / G consecutive query heads shares one: for H = 6 and G = 2, query
        heads 0, 1, 2 use key head 0 and query heads 3, 4, 5 use key head 1.

        Write this attention (scaled, without a mask).
    """,
    function="grouped_attention",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "round-robin",
            "The key heads are repeated in turn (0, 1, 0, 1, …) instead of one after the other (0, 0, …, 1, 1, …).",
            "That is what `repeat` does; `repeat_interleave` makes groups. The shapes agree, so nothing complains.",
            order="round robin",
        ),
        mistake(
            "first-head-only",
            "All query heads use the first key head.",
            "That is multi-query attention, the special case G = 1.",
            order="first",
        ),
        mistake(
            "no-scale",
            "The scores are not divided by √d.",
            "Dot products grow with the width, and the softmax of large scores has almost no gradient.",
            scale=False,
        ),
    ),
)
