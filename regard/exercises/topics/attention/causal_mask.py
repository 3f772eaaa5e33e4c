"""Write a causal mask for the last queries (D10)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def causal_mask(m: int, n: int) -> Tensor:
    """Return a mask (m, n): True where one of the last m of n tokens may attend to a key."""
    raise NotImplementedError
'''


def reference(
    m: int, n: int, *, reverse: bool = False, strict: bool = False, align: str = "end", inverted: bool = False
) -> Tensor:
    """Return True where a key is not later than the query."""
    first = n - m if align == "end" else 0
    queries, keys = torch.arange(first, first + m)[:, None], torch.arange(n)
    if strict:
        mask = keys > queries if reverse else keys < queries
    else:
        mask = keys >= queries if reverse else keys <= queries
    return ~mask if inverted else mask


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("as many queries as keys", (4, 4))
    yield Case("two new tokens behind three in the cache", (2, 5))
    yield Case("one new token", (1, 4))


EXERCISE = CodeExercise(
    question="""
        In a language model, a token attends to itself and to earlier tokens, never to later ones. Write the mask, True
        where a query may attend to a key.

        With a key-value cache there are fewer queries than keys: the m queries are the last m of the n tokens. For
        m = 2 and n = 5 the queries are tokens 3 and 4 (counted from 0), and the mask is

            ■ ■ ■ ■ ·
            ■ ■ ■ ■ ■
    """,
    function="causal_mask",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "aligned-at-start",
            "The mask is aligned with the first keys instead of the last.",
            "It is right for m = n, so training works. With a cache, the new token would see only the first key.",
            align="start",
        ),
        mistake(
            "reversed",
            "The mask is reversed: tokens attend to themselves and to later tokens.",
            "The model reads the answer in training, and has no later tokens when it writes.",
            reverse=True,
        ),
        mistake(
            "not-itself",
            "A token may not attend to itself.",
            "The first token then has no key at all, and every token predicts the next one without knowing itself.",
            strict=True,
        ),
        mistake(
            "inverted",
            "The mask is inverted: it is True where attending is forbidden.",
            "Here True means that a query may attend.",
            inverted=True,
        ),
    ),
)
