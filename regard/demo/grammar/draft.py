"""The state of one sentence while it is generated: random choices, new links, and the phenomena it contains."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from regard.demo.grammar.surface import Phrase

T = TypeVar("T")


class Draft:
    """A sentence in the making. `richness` is how often nouns get adjectives, owners and relative clauses."""

    def __init__(self, random: Random, richness: float = 0.3) -> None:
        self._random = random.random  # the only method whose numbers Python guarantees not to change
        self.richness = richness
        self.phenomena: set[str] = set()
        self.has_mood = False  # one is enough: not "sad, but happy"
        self._link = 0
        self.used: set[object] = set()  # by pick_new

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._random() * len(choices))]

    def pick_new(self, choices: Sequence[T]) -> T:
        """Pick a choice that is new in this sentence, in up to three tries: no girl waits for the girl."""
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
        """Link words that translate each other one by one, or all to all if their numbers differ."""
        french_words, english_words = french.split(), english.split()
        if len(french_words) == len(english_words):
            links = [self.link() for _ in french_words]
            return Phrase(list(zip(french_words, links, strict=True)), list(zip(english_words, links, strict=True)))
        link = self.link()
        return Phrase([(word, link) for word in french_words], [(word, link) for word in english_words])
