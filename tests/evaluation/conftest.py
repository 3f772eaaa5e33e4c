"""Sentences of made-up words, and systems that get some of them wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

WORDS = [f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("n", "ra", "st", "to", "vi", "zel")]


@pytest.fixture(scope="session")
def references() -> list[str]:
    """300 sentences of 3 to 25 words."""
    draw = random.Random(7)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 25))).capitalize() + "." for _ in range(300)]


@pytest.fixture(scope="session")
def system(references: list[str]) -> Callable[[float, int], list[str]]:
    """Gives the output of a system that replaces each word with the given probability."""

    def translate(errors: float, seed: int = 0) -> list[str]:
        draw = random.Random(seed)
        return [" ".join(draw.choice(WORDS) if draw.random() < errors else w for w in r.split()) for r in references]

    return translate
