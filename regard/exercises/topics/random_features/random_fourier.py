"""Write random Fourier features (Rahimi and Recht 2007; F2)."""

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


def features(X: Tensor, W: Tensor) -> Tensor:
    """X (n, d) and random rows W (D, d); return φ(X) (n, 2 D): all sines, then all cosines."""
    raise NotImplementedError
'''


def reference(X: Tensor, W: Tensor, *, norm: str = "1/D", waves: str = "sin cos", turns: bool = False) -> Tensor:
    """Return sqrt(1/D) [sin(W x), cos(W x)]."""
    D = len(W)
    angles = X @ W.T * (2 * math.pi if turns else 1.0)
    parts = {
        "sin cos": (angles.sin(), angles.cos()),
        "cos sin": (angles.cos(), angles.sin()),
        "cos cos": (angles.cos(), angles.cos()),
    }[waves]
    factor = {"1/D": D**-0.5, "none": 1.0, "squared": 1 / D, "2/D": (2 / D) ** 0.5, "1/2D": (2 * D) ** -0.5}[norm]
    return factor * torch.cat(parts, -1)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("one random row", (draw(3, 2), draw(1, 2)))
    yield Case("eight random rows", (draw(4, 5), draw(8, 5)))


EXERCISE = CodeExercise(
    question="""
        Random Fourier features replace a kernel by a dot product:

            φ(x) = √(1/D) [sin(w_1 · x), …, sin(w_D · x), cos(w_1 · x), …, cos(w_D · x)]

        With rows w_i drawn from N(0, I), φ(x) · φ(y) is near exp(-|x - y|² / 2). Write φ for the rows of X; the rows
        w_i are given as W.
    """,
    function="features",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "not-scaled",
            "The factor √(1/D) is missing.",
            "φ(x) · φ(x) should be 1: it is the sum of D terms sin² + cos² = 1, divided by D.",
            norm="none",
        ),
        mistake(
            "divided-by-D",
            "The factor is 1/D instead of its root.",
            "φ is multiplied with another φ, so the root of 1/D occurs twice.",
            norm="squared",
        ),
        mistake(
            "root-of-2-over-D",
            "The factor is √(2/D).",
            "That belongs to the variant with cosines and random phases only. With sine and cosine, each row gives 1.",
            norm="2/D",
        ),
        mistake(
            "divided-by-all-entries",
            "The factor is √(1/(2D)): it counts sines and cosines.",
            "A sine and its cosine together give sin² + cos² = 1, so D is right.",
            norm="1/2D",
        ),
        mistake(
            "cosine-twice",
            "The sines are missing: the cosines are there twice.",
            "cos a cos b + sin a sin b = cos(a - b) needs both; only then a product depends on x - y alone.",
            waves="cos cos",
        ),
        mistake(
            "cosines-first",
            "The cosines come before the sines.",
            "Products stay the same, but features saved by one program are read by another.",
            waves="cos sin",
        ),
        mistake(
            "full-turns",
            "The angles are multiplied by 2π.",
            "With rows from N(0, I) that is another kernel, much narrower.",
            turns=True,
        ),
    ),
)
