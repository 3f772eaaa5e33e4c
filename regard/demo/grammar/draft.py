"""The dice of one sentence: random choices, fresh links, and the phenomena met on the way."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from regard.demo.grammar.surface import Phrase

T = TypeVar("T")


class Draft:
    """A sentence in the making. `richness` is how readily nouns get adjectives, owners and relative clauses."""

    def __init__(self, random: Random, richness: float = 0.3) -> None:
        self._random = random.random  # the one method whose numbers Python promises not to change
        self.richness = richness
        self.phenomena: set[str] = set()
        self.mood_told = False  # one is enough: sad, but happy
        self._link = 0
        self.used: set[object] = set()  # by pick_new

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random() * len(choices))]

    def pick_new(self, choices: Sequence[T]) -> T:
        """A choice that the sentence has not had yet, as far as three tries find one: no girl waits for the girl."""
        for _ in range(3):
            chosen = self.pick(choices)
            if chosen not in self.used:
                break
        self.used.add(chosen)
        return chosen

    def chance(self, probability: float) -> bool:
        return self._random() < probability

    def link(self) -> tuple[int]:
        self._link += 1
        return (self._link,)

    def tag(self, phenomenon: str) -> None:
        self.phenomena.add(phenomenon)

    def pair(self, french: str, english: str) -> Phrase:
        """Words that translate each other one by one, or all by all if their numbers differ."""
        ours, theirs = french.split(), english.split()
        if len(ours) == len(theirs):
            links = [self.link() for _ in ours]
            return Phrase(list(zip(ours, links, strict=True)), list(zip(theirs, links, strict=True)))
        link = self.link()
        return Phrase([(word, link) for word in ours], [(word, link) for word in theirs])
