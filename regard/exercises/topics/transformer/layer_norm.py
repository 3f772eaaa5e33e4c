"""Write layer normalization (Ba et al. 2016; E1)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def layer_norm(X: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    """X (…, d), gain and bias (d); return the normalized tokens (…, d)."""
    raise NotImplementedError
'''


def reference(
    X: Tensor,
    gain: Tensor,
    bias: Tensor,
    eps: float,
    *,
    axis: int | tuple[int, ...] = -1,
    unbiased: bool = False,
    eps_at: str = "inside",
    center: bool = True,
    affine: bool = True,
) -> Tensor:
    """Return gain * (x - mean) / sqrt(variance + eps) + bias."""
    variance = X.var(axis, keepdim=True, unbiased=unbiased)
    centered = X - X.mean(axis, keepdim=True) if center else X
    if not center:
        variance = X.square().mean(axis, keepdim=True)
    divisor = {"inside": (variance + eps).sqrt(), "outside": variance.sqrt() + eps, "none": variance.sqrt()}[eps_at]
    normalized = centered / divisor
    return normalized * gain + bias if affine else normalized


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one sentence", (draw(3, 4) * 2 + 1, draw(4), draw(4), 1e-5))
    yield Case("a batch of sentences", (draw(2, 3, 6) * 3, draw(6), draw(6), 1e-5))
    yield Case("a large eps", (draw(2, 5), draw(5), draw(5), 0.5))


EXERCISE = CodeExercise(
    question="""
        Write layer normalization:

            gain * (x - mean) / sqrt(variance + eps) + bias

        Mean and variance are those of the features of one token: each token is normalized on its own, whatever else is
        in the batch. The variance is divided by d, not by d - 1. Do not use torch.nn.LayerNorm.
    """,
    function="layer_norm",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "over-tokens",
            "Mean and variance go over the tokens of a sentence, not over the features of a token.",
            "Then a token depends on later ones: in training the model sees the future through the statistics.",
            axis=-2,
        ),
        mistake(
            "over-the-batch",
            "Mean and variance go over the first dimension, the batch.",
            "That is batch normalization: it needs running statistics, and fails for a batch of one.",
            axis=0,
        ),
        mistake(
            "unbiased-variance",
            "The variance is divided by d - 1, which is the default of torch.var.",
            "Pass unbiased=False (or correction=0): trained weights expect the variance divided by d.",
            unbiased=True,
        ),
        mistake(
            "eps-outside",
            "eps is added to the standard deviation instead of the variance.",
            "It hardly matters for a small eps, but the results differ from PyTorch's.",
            eps_at="outside",
        ),
        mistake(
            "no-eps",
            "eps is not used.",
            "A token whose features are all equal would be divided by zero.",
            eps_at="none",
        ),
        mistake(
            "not-centered",
            "The mean is not subtracted.",
            "Dividing by the root of the mean square is RMSNorm, as in Llama; layer normalization centers first.",
            center=False,
        ),
        mistake(
            "no-gain-and-bias",
            "Gain and bias are missing.",
            "They let the model undo the normalization where it is in the way.",
            affine=False,
        ),
    ),
)
