"""Assemble an encoder block (Vaswani et al. 2017, section 3.1; E3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
from collections.abc import Callable

from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def encoder_block(X: Tensor, attention: Layer, feed_forward: Layer, norm_1: Layer, norm_2: Layer) -> Tensor:
    """X (n, d), and four functions that map (n, d) to (n, d); return the output of the block (n, d)."""
    raise NotImplementedError
'''

Layer = Callable[[Tensor], Tensor]


class Affine:
    """A stand-in for a layer: a map that no other one can replace unnoticed."""

    def __init__(self, W: Tensor, normalize: bool = False) -> None:
        self.W, self.normalize = W, normalize

    def __call__(self, X: Tensor) -> Tensor:
        Y = torch.tanh(X @ self.W)
        return torch.nn.functional.layer_norm(X, X.shape[-1:]) * self.W[0] if self.normalize else Y


def reference(
    X: Tensor,
    attention: Layer,
    feed_forward: Layer,
    norm_1: Layer,
    norm_2: Layer,
    *,
    order: str = "post",
    first: bool = True,
    second: str = "U",
    norms: str = "both",
) -> Tensor:
    """Return LayerNorm(FFN(U) + U) with U = LayerNorm(Attention(X) + X)."""
    norm_2 = norm_1 if norms == "same" else norm_2
    if order == "pre":
        U = attention(norm_1(X)) + (X if first else 0)
        return feed_forward(norm_2(U)) + (0 if second == "none" else U)
    if order == "inside":
        U = norm_1(attention(X)) + (X if first else 0)
        return norm_2(feed_forward(U)) + (0 if second == "none" else U)
    U = attention(X) + (X if first else 0)
    U = U if norms == "last only" else norm_1(U)
    return norm_2(feed_forward(U) + {"U": U, "X": X, "none": torch.zeros_like(U)}[second])


def cases(draw: Draw) -> Iterator[Case]:
    for label, n, d in (("three tokens", 3, 4), ("five tokens", 5, 6)):
        layers = (Affine(draw(d, d)), Affine(draw(d, d)), Affine(draw(d, d), True), Affine(draw(d, d), True))
        yield Case(label, (draw(n, d), *layers))


EXERCISE = CodeExercise(
    question="""
        Assemble an encoder block from its parts, as in the original Transformer ("Add & Norm"):

            U  = norm_1(attention(X) + X)
            X' = norm_2(feed_forward(U) + U)
    """,
    function="encoder_block",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "first-residual-forgotten",
            "The residual connection around attention is missing.",
            "It carries the token itself, and its position, upward; attention alone mixes them away.",
            first=False,
        ),
        mistake(
            "second-residual-forgotten",
            "The residual connection around the feed-forward net is missing.",
            "Residuals let the gradient pass through deep stacks undiminished.",
            second="none",
        ),
        mistake(
            "second-residual-from-the-input",
            "The second residual adds X instead of U.",
            "It jumps over attention, so what attention found reaches the output only through the feed-forward net.",
            second="X",
        ),
        mistake(
            "pre-norm",
            "The norms come before attention and feed-forward: this is the pre-norm block.",
            "Many newer models do it so, because it is easier to train; here the norm comes after the sum.",
            order="pre",
        ),
        mistake(
            "norm-before-the-sum",
            "The norm is applied before the residual is added.",
            "The sum then grows from block to block.",
            order="inside",
        ),
        mistake(
            "same-norm-twice",
            "norm_1 is used in both places.",
            "Each norm has its own gain and bias.",
            norms="same",
        ),
        mistake(
            "first-norm-forgotten",
            "The first norm is missing.",
            "The feed-forward net then gets inputs of very different size.",
            norms="last only",
        ),
    ),
)
