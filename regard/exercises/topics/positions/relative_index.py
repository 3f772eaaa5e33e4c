"""Look up relative positions by clipped distance (Shaw et al. 2018; B8)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def relative_bias(table: Tensor, n: int) -> Tensor:
    """Table (2 r + 1) of biases for distances -r … r; return the bias of each query and key (n, n)."""
    raise NotImplementedError
'''


def reference(
    table: Tensor, n: int, *, reverse: bool = False, clip: bool = True, offset: bool = True, absolute: bool = False
) -> Tensor:
    """Return table[clip(k - q) + r]."""
    r = (len(table) - 1) // 2
    distance = torch.arange(n) - torch.arange(n)[:, None]  # key minus query
    distance = -distance if reverse else distance
    distance = distance.abs() if absolute else distance
    index = distance.clamp(-r, r) if clip else distance
    index = index + r if offset else index
    return table[index % len(table)]


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("a text shorter than the table", (draw(9), 3))
    yield Case("a text longer than the table", (draw(5), 6))


EXERCISE = CodeExercise(
    question="""
        Relative positions depend on the distance from the query to the key, k - q, not on the place in the text. A
        table has a number for each distance from -r to r: its first entry is that of distance -r (a key far to the
        left), its last that of +r. Keys farther away share the entry of -r or r.

        Write the matrix of these numbers, a row per query and a column per key. It is added to the scores.
    """,
    function="relative_bias",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "reversed",
            "The distance is q - k instead of k - q.",
            "Left and right are exchanged; a head that should look one word back looks one word ahead.",
            reverse=True,
        ),
        mistake(
            "not-clipped",
            "Far distances are not clipped to -r … r.",
            "Negative indices count from the end in Python, so far keys silently get the entries of other distances.",
            clip=False,
        ),
        mistake(
            "no-offset",
            "r is not added to the distance.",
            "Distance 0 then reads the first entry, which is that of -r, and negative distances read from the end.",
            offset=False,
        ),
        mistake(
            "absolute-distance",
            "The sign of the distance is lost.",
            "One word before and one word after are different things: keep the direction.",
            absolute=True,
        ),
    ),
)
