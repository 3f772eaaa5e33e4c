"""Write attention with a mask (D10)."""

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


def masked_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Q (m, d), K (n, d), V (n, d_v), mask (m, n), True where a query may attend; return the output (m, d_v)."""
    raise NotImplementedError
'''


def reference(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    mask: Tensor,
    *,
    how: str = "before",
    inverted: bool = False,
    scale: bool = True,
    empty: str = "zeros",
) -> Tensor:
    """Return softmax(masked scores) V, and zeros for a query that may attend to nothing."""
    mask = ~mask if inverted else mask
    scores = Q @ K.T / (math.sqrt(Q.shape[-1]) if scale else 1.0)
    if how == "multiplied":
        return torch.softmax(scores * mask, dim=-1) @ V
    if how == "after":
        return (torch.softmax(scores, dim=-1) * mask) @ V
    if how == "ignored":
        return torch.softmax(scores, dim=-1) @ V
    never = -1e9 if empty == "uniform" else -math.inf
    weights = torch.softmax(scores.masked_fill(~mask, never), dim=-1)
    return (weights.nan_to_num(0.0) if empty == "zeros" else weights) @ V


def cases(draw: Draw) -> Iterator[Case]:
    some = torch.tensor([[True, False, True, True], [True, True, False, False], [False, True, False, True]])
    yield Case("a mask with holes", (draw(3, 4), draw(4, 4), draw(4, 2), some))
    yield Case("a causal mask", (draw(4, 4), draw(4, 4), draw(4, 4), torch.ones(4, 4).tril().bool()))
    empty = some.clone()
    empty[1] = False
    yield Case("a query that may attend to nothing", (draw(3, 4), draw(4, 4), draw(4, 2), empty))


EXERCISE = CodeExercise(
    question="""
        Write scaled dot-product attention with a mask. A query attends only where the mask is True: forbidden scores
        become minus infinity before the softmax.

        A query whose mask is False everywhere has no weights; its output should be a row of zeros. (In practice this
        happens with padding, and nan in one row spreads over the whole model.)
    """,
    function="masked_attention",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "nan-for-empty-rows",
            "A query that may attend to nothing gives nan.",
            "Its softmax is 0 / 0. Set these weights to zero after the softmax.",
            empty="nan",
        ),
        mistake(
            "large-number-instead-of-infinity",
            "Forbidden scores are a large negative number; a query that may attend to nothing attends to all.",
            "All its scores are equal, and the softmax of equal scores is uniform: it returns the mean of the values.",
            empty="uniform",
        ),
        mistake(
            "mask-inverted",
            "The mask is inverted: queries attend exactly where they must not.",
            "Here True means that a query may attend. masked_fill replaces where its mask is True: pass ~mask.",
            inverted=True,
        ),
        mistake(
            "masked-after-softmax",
            "The mask is applied to the weights, after the softmax.",
            "The remaining weights no longer sum to one, and forbidden keys still changed them.",
            how="after",
        ),
        mistake(
            "masked-with-zero",
            "Forbidden scores are multiplied by 0 instead of becoming minus infinity.",
            "exp(0) is 1: a forbidden key gets more weight than an allowed one with a negative score.",
            how="multiplied",
        ),
        mistake(
            "mask-ignored",
            "The mask is not used.",
            "Queries attend to padding, or to the future.",
            how="ignored",
        ),
        mistake(
            "no-scale",
            "The scores are not divided by √d.",
            "Dot products grow with the width, and the softmax of large scores has almost no gradient.",
            scale=False,
        ),
    ),
)
