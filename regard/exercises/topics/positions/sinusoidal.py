"""Write the sinusoidal positions (Vaswani et al. 2017, section 3.5; B2)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.exercises.exercise import Case, CodeExercise, Draw, mistake

SKELETON = '''
import torch
from torch import Tensor


def positions(length: int, d: int) -> Tensor:
    """Return the encodings of positions 0 … length - 1 as rows (length, d), for even d."""
    raise NotImplementedError
'''


def reference(
    length: int,
    d: int,
    *,
    order: str = "alternating",
    power: str = "2i",
    first: int = 0,
    first_pair: int = 0,
    swap: bool = False,
) -> Tensor:
    """Return sin and cos of pos / 10000^(2i/d), by turns."""
    pos = torch.arange(first, first + length)[:, None]
    if power == "each":  # every dimension with an exponent of its own
        angles = pos / 10000 ** (torch.arange(d) / d)
        return torch.where(torch.arange(d) % 2 == 0, angles.sin(), angles.cos())
    i = torch.arange(first_pair, first_pair + d // 2)
    exponent = {"2i": 2 * i, "i": i, "4i": 4 * i}[power] / d
    angles = pos / 10000**exponent
    waves = [angles.cos(), angles.sin()] if swap else [angles.sin(), angles.cos()]
    return torch.cat(waves, -1) if order == "halves" else torch.stack(waves, -1).flatten(1)


def cases(draw: Draw) -> Iterator[Case]:
    yield Case("width 2", (5, 2))
    yield Case("width 4", (6, 4))
    yield Case("a long table", (100, 16))


EXERCISE = CodeExercise(
    question="""
        Write the table of sinusoidal positions, one row per position:

            PE(pos, 2i)     = sin(pos / 10000^(2i/d))
            PE(pos, 2i + 1) = cos(pos / 10000^(2i/d))        i = 0, 1, …, d/2 - 1

        Sine and cosine of the same angle stand side by side. Positions count from 0.
    """,
    function="positions",
    skeleton=SKELETON,
    reference=reference,
    cases=cases,
    mistakes=(
        mistake(
            "halves",
            "All sines come first, then all cosines.",
            "The model can learn either, but weights trained with one order do not work with the other.",
            order="halves",
        ),
        mistake(
            "exponent-without-two",
            "The exponent is i/d instead of 2i/d.",
            "The frequencies then reach only from 1 to 1/100, and positions repeat sooner.",
            power="i",
        ),
        mistake(
            "dimension-doubled",
            "The exponent is twice too large: 2 times the even index 2i.",
            "The even index is already 2i. Half of the dimensions then hardly change in a text.",
            power="4i",
        ),
        mistake(
            "each-dimension-its-own-angle",
            "Sine and cosine of a pair have different angles: the exponent is the dimension divided by d.",
            "Only with one angle per pair is a step a rotation, and a dot product a matter of the distance alone.",
            power="each",
        ),
        mistake(
            "positions-from-one",
            "The positions are counted from 1.",
            "Here the first position is 0, whose row is 0, 1, 0, 1, …",
            first=1,
        ),
        mistake(
            "pairs-from-one",
            "The pairs are counted from 1, so the fastest wave is missing.",
            "i starts at 0: the first pair is sin(pos), cos(pos). It tells neighbours apart.",
            first_pair=1,
        ),
        mistake(
            "cosine-first",
            "The cosine comes before the sine in each pair.",
            "Even dimensions have the sine, odd ones the cosine.",
            swap=True,
        ),
    ),
)
