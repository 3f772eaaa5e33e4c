"""Compute a sinusoidal position by hand (Vaswani et al. 2017, section 3.5; B2)."""

from __future__ import annotations

import math

from regard.exercises.exercise import NumberExercise, mistake

DIM = 4


def reference(
    *,
    degrees: bool = False,
    exponent: str = "2i/d",
    order: str = "alternating",
    shift: int = 0,
    cosine_first: bool = False,
) -> dict[str, list[float]]:
    """Return the encodings of positions 0 and 3 for d = 4."""

    def encode(position: int) -> list[float]:
        pairs = []
        for i in range(DIM // 2):
            power = {"2i/d": 2 * i / DIM, "i/d": i / DIM, "4i/d": 4 * i / DIM}[exponent]
            angle = (position + shift) / 10000**power
            angle = math.radians(angle) if degrees else angle
            pair = (math.sin(angle), math.cos(angle))
            pairs.append(pair[::-1] if cosine_first else pair)
        if order == "halves":
            return [sine for sine, _ in pairs] + [cosine for _, cosine in pairs]
        return [value for pair in pairs for value in pair]

    return {"position_0": encode(0), "position_3": encode(3)}


EXERCISE = NumberExercise(
    question="""
        The Transformer encodes position pos as a vector of width d:

            PE(pos, 2i)     = sin(pos / 10000^(2i/d))
            PE(pos, 2i + 1) = cos(pos / 10000^(2i/d))        i = 0, 1, …

        Positions count from 0. Compute the encodings of positions 0 and 3 for d = 4. Angles are in radians; you may use
        sin 3 = 0.141, cos 3 = -0.990, sin 0.03 = 0.030 and cos 0.03 = 1.000, if you need them.
    """,
    answers={"position_0": "four numbers", "position_3": "four numbers"},
    reference=reference,
    mistakes=(
        mistake(
            "degrees",
            "The angles are taken in degrees.",
            "The formula is in radians; with 3 degrees, near positions can hardly be told apart.",
            degrees=True,
        ),
        mistake(
            "halves",
            "All sines come first, then all cosines.",
            "Some libraries do it so, and the model can learn either. But the formula alternates sine and cosine.",
            order="halves",
        ),
        mistake(
            "cosine-first",
            "The cosine comes before the sine in each pair.",
            "Even dimensions have the sine, odd ones the cosine.",
            cosine_first=True,
        ),
        mistake(
            "exponent-without-two",
            "The exponent is i/d instead of 2i/d.",
            "Then the slowest wave is 100 times too fast: the frequencies should reach from 1 to nearly 1/10000.",
            exponent="i/d",
        ),
        mistake(
            "dimension-doubled",
            "The exponent has twice the dimension: 2 times the even index 2i.",
            "The index 2i is already the dimension. In the second pair i is 1, and the exponent is 2 · 1 / 4.",
            exponent="4i/d",
        ),
        mistake(
            "counted-from-one",
            "The positions are counted from 1.",
            "Here the first position is 0.",
            shift=1,
        ),
    ),
)
