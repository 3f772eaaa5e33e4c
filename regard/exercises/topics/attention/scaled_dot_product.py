"""Write scaled dot-product attention (Vaswani et al. 2017, eq. 1; D9)."""

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


def attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Q (…, m, d_k), K (…, n, d_k), V (…, n, d_v); return the output (…, m, d_v)."""
    raise NotImplementedError
'''


def reference(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    *,
    scale: str = "key width",
    axis: int = -1,
    normalize: bool = True,
    transpose: str = "last two",
) -> Tensor:
    """Return softmax(Q Kᵀ / √d_k) V."""
    keys = K.transpose(-2, -1) if transpose == "last two" else K.permute(*reversed(range(K.dim())))
    scores = Q @ keys
    divisor = {"key width": math.sqrt(Q.shape[-1]), "none": 1.0, "squared": Q.shape[-1], "keys": math.sqrt(K.shape[-2])}
    scores = scores / divisor[scale]
    weights = torch.softmax(scores, dim=axis) if normalize else scores
    return weights @ V


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one head", (draw(3, 8), draw(5, 8), draw(5, 4)))
    yield Case("as many queries as keys", (draw(4, 6), draw(4, 6), draw(4, 6)))
    yield Case("two heads", (draw(2, 3, 8), draw(2, 5, 8), draw(2, 5, 4)))
    yield Case("a batch with several heads", (draw(2, 3, 4, 16), draw(2, 3, 6, 16), draw(2, 3, 6, 5)))


EXERCISE = CodeExercise(
    question="""
        Write attention as in "Attention is all you need":

            Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

        Row j of Q is a query, row k of K a key and row k of V its value; d_k is the width of a key. Row j of the output
        is the mean of the values, weighted by how well query j fits each key. Leading dimensions (batch, heads) are
        handled independently: your code should work with any number of them. You may use torch.softmax.
    """,
    function="attention",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "no-scale",
            "The scores are not divided by √d_k.",
            "Dot products of wide vectors are large, the softmax then picks one key, and its gradient vanishes.",
            scale="none",
        ),
        mistake(
            "scaled-by-width",
            "The scores are divided by d_k instead of √d_k.",
            "The standard deviation of a dot product is √d_k; divided by d_k, wide keys get nearly equal weights.",
            scale="squared",
        ),
        mistake(
            "scaled-by-keys",
            "The scores are divided by the root of the number of keys instead of that of their width.",
            "The scale undoes the growth with d_k. How sharp attention is must not depend on the length of the text.",
            scale="keys",
        ),
        mistake(
            "softmax-over-queries",
            "The softmax goes over the queries instead of the keys.",
            "Each query must divide a weight of one among the keys; here the queries compete for each key.",
            axis=-2,
        ),
        mistake(
            "no-softmax",
            "The softmax is missing: the scores are used as weights.",
            "Then the output is linear in Q and K, the weights are negative, and do not sum to one.",
            normalize=False,
        ),
        mistake(
            "all-dimensions-reversed",
            "K.T reverses all dimensions, not only the last two.",
            "It is right for one head only. With a batch use K.transpose(-2, -1).",
            transpose="all",
        ),
    ),
)
