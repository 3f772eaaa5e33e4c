"""Sentence pairs with facts."""

from __future__ import annotations

import random

from regard.demo.facts import fact_pairs
from regard.text.placeholders.placeholders import hide_pair


def test_the_same_seed_gives_the_same_pairs() -> None:
    assert fact_pairs(50, seed=3) == fact_pairs(50, seed=3) != fact_pairs(50, seed=4)


def test_every_fact_becomes_a_placeholder_on_both_sides() -> None:
    for source, target in fact_pairs(1000):
        assert "{" not in source + target
        sides = hide_pair(source, target, ("fr", "en"), random.Random(1))
        assert not any(character.isdigit() for side in sides for character in side), (source, target)
