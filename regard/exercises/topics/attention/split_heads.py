"""Split vectors into heads and merge them again (D11)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def split_and_merge(X: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """X (B, n, d); return the heads (B, heads, n, d / heads), and the heads merged again to (B, n, d)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor, heads: int, *, split: str = "transpose", merge: str = "transpose", interleaved: bool = False
) -> tuple[Tensor, Tensor]:
    """Return head h with the columns h d_k … (h + 1) d_k - 1 of each token, and the merged vectors."""
    B, n, d = X.shape
    if split == "reshape":
        apart = X.reshape(B, heads, n, d // heads)
    elif interleaved:
        apart = X.reshape(B, n, d // heads, heads).permute(0, 3, 1, 2)
    else:
        apart = X.reshape(B, n, heads, d // heads).transpose(1, 2)
    if split == "reshape" or merge == "reshape":
        return apart, apart.reshape(B, n, d)
    if interleaved:
        return apart, apart.permute(0, 2, 3, 1).reshape(B, n, d)
    return apart, apart.transpose(1, 2).reshape(B, n, d)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("two heads", (draw(1, 3, 4), 2))
    yield Case("a batch with four heads", (draw(2, 5, 12), 4))


EXERCISE = CodeExercise(
    question="""
        Multi-head attention cuts each token's vector of width d into `heads` parts of width d_k = d / heads. Head h has
        the columns h d_k to (h + 1) d_k - 1 of every token. Write both directions: cut X into heads, and put the heads
        back side by side, so that the second result equals X.

        Beware: a reshape to (B, heads, n, d_k) has the right shape and the wrong content.
    """,
    function="split_and_merge",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "reshape-only",
            "The heads are made by one reshape, without a transpose.",
            "Then a head mixes columns of different tokens. Nothing fails, and the model learns badly: reshape to"
            " (B, n, heads, d_k) first, then swap dimensions 1 and 2.",
            split="reshape",
        ),
        mistake(
            "merged-without-transpose",
            "The heads are right, but merged by a reshape without swapping the dimensions back.",
            "The vector of a token then has parts of other tokens. Swap dimensions 1 and 2 before the reshape.",
            merge="reshape",
        ),
        mistake(
            "interleaved",
            "Head h has every heads-th column instead of a block of columns.",
            "It is another numbering. Weights of a trained model, or of a checkpoint, expect blocks.",
            interleaved=True,
        ),
    ),
)
