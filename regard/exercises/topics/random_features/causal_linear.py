"""Write causal linear attention with running sums (F3)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def causal_linear(phi_Q: Tensor, phi_K: Tensor, V: Tensor) -> Tensor:
    """φ(Q) and φ(K) (n, M), all positive, V (n, d_v); return the output (n, d_v)."""
    raise NotImplementedError
'''


def reference(
    phi_Q: Tensor, phi_K: Tensor, V: Tensor, *, itself: bool = True, causal: str = "both", reverse: bool = False
) -> Tensor:
    """Return linear attention in which a token attends to itself and to earlier tokens."""
    weights = phi_Q @ phi_K.T
    mask = torch.ones_like(weights).tril(0 if itself else -1)
    mask = mask.T if reverse else mask
    masked = weights * mask
    above = masked if causal in ("both", "values") else weights
    below = masked if causal == "both" else weights
    return above @ V / below.sum(1, keepdim=True).clamp(min=1e-9)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("four tokens", (draw(4, 5).abs(), draw(4, 5).abs(), draw(4, 3)))
    yield Case("one token", (draw(1, 5).abs(), draw(1, 5).abs(), draw(1, 3)))
    yield Case("nine tokens", (draw(9, 4).abs(), draw(9, 4).abs(), draw(9, 4)))


EXERCISE = CodeExercise(
    question="""
        In a language model, token t attends to tokens 0 … t. With random features this needs two running sums only:

            S_t = S_{t-1} + φ(k_t) v_tᵀ        an M × d_v matrix
            z_t = z_{t-1} + φ(k_t)             a vector of width M
            y_t = φ(q_t) S_t / (φ(q_t) · z_t)

        Write it with a loop or with cumsum. The state is as large for a book as for a sentence: attention has become a
        recurrent network.
    """,
    function="causal_linear",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "itself-not-seen",
            "The sums are updated after the output, so a token does not attend to itself.",
            "Add φ(k_t) first. The first token would have nothing to attend to.",
            itself=False,
        ),
        mistake(
            "not-causal",
            "Every token attends to all tokens.",
            "Use running sums, not the sums over the whole text: else the model sees the future.",
            causal="none",
        ),
        mistake(
            "normalizer-not-causal",
            "The normalizer sums over the whole text; only the values are causal.",
            "The weights of early tokens then sum to less than one, and they depend on the future.",
            causal="values",
        ),
        mistake(
            "reversed",
            "The sums run from the end: tokens attend to later ones.",
            "Run over the text from left to right.",
            reverse=True,
        ),
    ),
)
