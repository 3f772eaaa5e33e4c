"""Estimate softmax attention with random features, factors included (F3)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def estimated_weights(Q: Tensor, K: Tensor, W: Tensor) -> Tensor:
    """Q (m, d), K (n, d), random rows W (D, d); return the estimated weights of attention (m, n), rows sum to one."""
    raise NotImplementedError
'''


def features(X: Tensor, W: Tensor) -> Tensor:
    """Return φ(X) with sines and cosines."""
    angles = X @ W.T
    return torch.cat([angles.sin(), angles.cos()], -1) / len(W) ** 0.5


def reference(
    Q: Tensor,
    K: Tensor,
    W: Tensor,
    *,
    factor: str = "keys",
    power: float = 0.25,
    normalize: bool = True,
) -> Tensor:
    """Return φ(q / d^¼) · φ(k / d^¼) exp(|k|² / (2 √d)), divided by the sum over the keys."""
    d = Q.shape[-1]
    q, k = Q / d**power, K / d**power
    products = features(q, W) @ features(k, W).T
    squares = {
        "keys": k.square().sum(-1) / 2,
        "none": torch.zeros(len(K)),
        "negative": -k.square().sum(-1) / 2,
        "not halved": k.square().sum(-1),
        "unscaled": K.square().sum(-1) / 2,
    }[factor]
    weights = products * squares.exp()
    return weights / weights.sum(-1, keepdim=True) if normalize else weights


def cases(draw: Draw) -> Iterator[Case]:
    for label, m, n in (("as many queries as keys", 4, 4), ("more keys", 3, 6)):
        yield Case(label, (draw(m, 6) * 0.7, draw(n, 6) * 0.7, draw(64, 6)))


EXERCISE = CodeExercise(
    question="""
        Random Fourier features estimate exp(-|x - y|² / 2), and softmax attention needs exp(q · k / √d). Since
        |x - y|² = |x|² - 2 x · y + |y|², with x = q / d^¼ and y = k / d^¼

            exp(q · k / √d) = exp(|x|² / 2) · exp(|y|² / 2) · exp(-|x - y|² / 2)

        The factor of the query is the same for all keys, and cancels when each row is divided by its sum. That of the
        key does not, and the formula on many slides has lost it.

        Return the estimated weights: φ(x) · φ(y) times the factor of the key, each row divided by its sum. φ has the
        sines of W x, then the cosines, divided by √D.
    """,
    function="estimated_weights",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "factor-missing",
            "The factor exp(|y|² / 2) of the keys is missing.",
            "Without it the result estimates another attention: one in which long keys have no advantage.",
            factor="none",
        ),
        mistake(
            "factor-inverted",
            "The factor of the keys has the wrong sign: exp(-|y|² / 2).",
            "Long keys get less weight; in softmax attention they get more.",
            factor="negative",
        ),
        mistake(
            "factor-squared",
            "The factor of the keys is exp(|y|²), without the 1/2.",
            "The 1/2 comes from exp(-|x - y|² / 2).",
            factor="not halved",
        ),
        mistake(
            "key-not-scaled",
            "The factor uses |k|² instead of |k / d^¼|².",
            "Everything belongs to x and y, the scaled query and key: |y|² = |k|² / √d.",
            factor="unscaled",
        ),
        mistake(
            "scaled-by-root",
            "Query and key are each divided by √d instead of d^¼.",
            "Their product is then divided by d: each of the two contributes half of the scale √d.",
            power=0.5,
        ),
        mistake(
            "not-scaled",
            "Query and key are not scaled.",
            "It estimates exp(q · k), without the 1/√d of scaled dot-product attention.",
            power=0.0,
        ),
        mistake(
            "not-normalized",
            "The rows are not divided by their sums.",
            "Only then does the factor of the query cancel, and the weights sum to one.",
            normalize=False,
        ),
    ),
)
