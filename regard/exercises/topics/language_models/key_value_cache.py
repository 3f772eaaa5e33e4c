"""Attend with a key-value cache (E10)."""

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


def step(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v (d) of the new token, keys and values (n, d) of the earlier ones.

    Return the output of the new token (d), and the grown keys and values (n + 1, d).
    """
    raise NotImplementedError
'''


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    when: str = "before",
    where: str = "end",
    scale: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention of the new token to all tokens, itself included."""

    def attend(K: Tensor, V: Tensor) -> Tensor:
        if len(K) == 0:
            return torch.zeros_like(v)
        return torch.softmax(K @ q / (math.sqrt(len(q)) if scale else 1.0), 0) @ V

    if where == "replace":
        new_keys = torch.cat([keys[:-1], k[None]])
        new_values = torch.cat([values[:-1], v[None]])
    else:
        new_keys = torch.cat([keys, k[None]] if where == "end" else [k[None], keys])
        new_values = torch.cat([values, v[None]] if where == "end" else [v[None], values])
    output = {"before": attend(new_keys, new_values), "after": attend(keys, values), "itself": v}[when]
    return output, new_keys, new_values


def cases(draw: Draw) -> Iterator[Case]:
    for label, n, d in (("three tokens in the cache", 3, 4), ("one token in the cache", 1, 2), ("many tokens", 8, 6)):
        yield Case(label, (draw(d), draw(d), draw(d), draw(n, d), draw(n, d)))


EXERCISE = CodeExercise(
    question="""
        When a language model writes, only the newest token needs a query: keys and values of earlier tokens are kept in
        a cache. Write such a step with scaled dot-product attention. The new token attends to all earlier ones and to
        itself; no mask is needed, because the cache has no later tokens.
    """,
    function="step",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "itself-not-seen",
            "The new token attends to the earlier ones only: its key and value are appended after attention.",
            "In training, the causal mask lets each token see itself. Decoding must compute the same.",
            when="after",
        ),
        mistake(
            "only-itself",
            "The new token attends to itself only.",
            "The cache is there to be read: without it the model forgets all context.",
            when="itself",
        ),
        mistake(
            "last-entry-overwritten",
            "The last entry of the cache is overwritten instead of a new one added.",
            "The model forgets the previous token at each step.",
            where="replace",
        ),
        mistake(
            "prepended",
            "The new key and value come first in the cache.",
            "The output is the same, but a mask or relative positions would then see the order reversed.",
            where="start",
        ),
        mistake(
            "no-scale",
            "The scores are not divided by √d.",
            "Decoding must compute the same as training.",
            scale=False,
        ),
    ),
)
