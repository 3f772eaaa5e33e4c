"""Write multi-head attention (Vaswani et al. 2017, section 3.2.2; D11)."""

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


def multi_head(X: Tensor, W_q: Tensor, W_k: Tensor, W_v: Tensor, W_o: Tensor, heads: int) -> Tensor:
    """X (n, d) and matrices (d, d); return self-attention with several heads (n, d)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    W_v: Tensor,
    W_o: Tensor,
    heads: int,
    *,
    scale: str = "head",
    axis: int = -1,
    split: str = "transpose",
    merge: str = "transpose",
    output: bool = True,
) -> Tensor:
    """Return Concat(head_1, …, head_h) W_o."""
    n, d = X.shape

    def apart(Z: Tensor) -> Tensor:
        if split == "reshape":
            return Z.reshape(heads, n, d // heads)
        return Z.reshape(n, heads, d // heads).transpose(0, 1)

    Q, K, V = apart(X @ W_q), apart(X @ W_k), apart(X @ W_v)  # (heads, n, d_k)
    divisor = {"head": math.sqrt(d // heads), "model": math.sqrt(d), "none": 1.0}[scale]
    Y = torch.softmax(Q @ K.transpose(-2, -1) / divisor, dim=axis) @ V
    Y = (Y if merge == "reshape" else Y.transpose(0, 1)).reshape(n, d)
    return Y @ W_o if output else Y


def cases(draw: Draw) -> Iterator[Case]:
    for label, n, d, heads in (("one head", 3, 4, 1), ("two heads", 3, 8, 2), ("four heads", 6, 12, 4)):
        yield Case(label, (draw(n, d), *(draw(d, d) * d**-0.5 for _ in range(4)), heads))


EXERCISE = CodeExercise(
    question="""
        Write self-attention with several heads:

            Q, K, V = X W_q, X W_k, X W_v
            head_h  = softmax(Q_h K_hᵀ / √d_k) V_h         d_k = d / heads
            output  = Concat(head_1, …, head_heads) W_o

        Q_h are the columns h d_k … (h + 1) d_k - 1 of Q, counted from 0, and so for K and V.
    """,
    function="multi_head",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "scaled-by-model-width",
            "The scores are divided by √d instead of √d_k.",
            "The dot product of a head has d_k terms. Scaled by the model's width, heads attend to everything alike.",
            scale="model",
        ),
        mistake(
            "no-scale",
            "The scores are not divided by √d_k.",
            "Dot products grow with the width of a head, and the softmax of large scores has almost no gradient.",
            scale="none",
        ),
        mistake(
            "softmax-over-queries",
            "The softmax goes over the queries instead of the keys.",
            "Each query must divide a weight of one among the keys.",
            axis=-2,
        ),
        mistake(
            "split-without-transpose",
            "The heads are made by one reshape, without a transpose.",
            "A head then mixes parts of different tokens: reshape to (n, heads, d_k), then swap dimensions 0 and 1.",
            split="reshape",
        ),
        mistake(
            "merged-without-transpose",
            "The heads are merged without swapping the dimensions back.",
            "The vector of a token then has parts of other tokens: transpose to (n, heads, d_k) before the reshape.",
            merge="reshape",
        ),
        mistake(
            "no-output-matrix",
            "The output matrix W_o is missing.",
            "W_o lets the heads share what they found; without it each head writes only into its own columns.",
            output=False,
        ),
    ),
)
