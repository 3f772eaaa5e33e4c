"""Find the bugs in a decoder block (E4)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import math

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(Q: Tensor, K: Tensor, V: Tensor, causal: bool = False) -> Tensor:
    """Scaled dot-product attention; this function is right."""
    scores = Q @ K.T / math.sqrt(K.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    return torch.softmax(scores, dim=-1) @ V


def norm(X: Tensor) -> Tensor:
    """Layer normalization without gain and bias; this function is right."""
    return F.layer_norm(X, X.shape[-1:])


def decoder_block(Y: Tensor, X: Tensor, W: Tensor) -> Tensor:
    """Target Y (m, d), output of the encoder X (n, d), W (d, d) for a small feed-forward net; return (m, d)."""
    U = norm(attend(Y, Y, Y) + Y)
    Z = norm(attend(U, X, X) + Y)
    return norm(torch.relu(Z @ W) + Z)
'''


def attend(Q: Tensor, K: Tensor, V: Tensor, causal: bool = False) -> Tensor:
    """Return scaled dot-product attention."""
    return F.scaled_dot_product_attention(Q, K, V, is_causal=causal)


def reference(
    Y: Tensor,
    X: Tensor,
    W: Tensor,
    *,
    causal: bool = True,
    residual: str = "U",
    cross_causal: bool = False,
    query: str = "U",
) -> Tensor:
    """Return the output of a post-norm decoder block."""

    def norm(Z: Tensor) -> Tensor:
        return F.layer_norm(Z, Z.shape[-1:])

    U = norm(attend(Y, Y, Y, causal) + Y)
    around = {"U": U, "Y": Y, "none": torch.zeros_like(U)}[residual]
    Z = norm(attend(U if query == "U" else Y, X, X, cross_causal) + around)
    return norm(torch.relu(Z @ W) + Z)


def cases(draw: Draw) -> Iterator[Case]:
    for label, m, n in (("equal lengths", 4, 4), ("a longer source", 3, 6), ("a longer target", 6, 4)):
        yield Case(label, (draw(m, 6), draw(n, 6), draw(6, 6)))


EXERCISE = CodeExercise(
    question="""
        This decoder block should compute

            U  = norm(masked self-attention of Y + Y)
            Z  = norm(attention of U's queries to the encoder's output X + U)
            Y' = norm(FFN(Z) + Z)

        A model made of it has a wonderful loss in training and writes nonsense. There are two bugs in `decoder_block`,
        a grave one and a smaller one; `attend` and `norm` are right. Find and mend both.
    """,
    function="decoder_block",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-causal",
            "The residual is right now, but the self-attention still sees later tokens: its causal mask is missing.",
            "In training the model copies the next token instead of predicting it. That explains the wonderful loss.",
            causal=False,
        ),
        mistake(
            "residual-skips-self-attention",
            "The causal mask is right now, but the residual around cross-attention still adds Y instead of U.",
            "What self-attention found is then lost on the way up, but for what the queries keep of it.",
            residual="Y",
        ),
        mistake(
            "cross-attention-causal",
            "Cross-attention is causal, too.",
            "The source is known as a whole: each target token may attend to all of it.",
            cross_causal=True,
        ),
        mistake(
            "residual-removed",
            "There is no residual around cross-attention any more.",
            "The token itself would reach the next layer only through what it reads in the source.",
            residual="none",
        ),
        mistake(
            "queries-from-the-input",
            "Cross-attention takes its queries from Y instead of U.",
            "The queries should know what self-attention has found about the words before.",
            query="Y",
        ),
    ),
)
