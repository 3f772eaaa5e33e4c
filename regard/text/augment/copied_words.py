"""Words that both sides of a pair have, hidden now and then: so a model learns to copy what it cannot know.

The model learns to write UNKNOWN for an UNKNOWN that it reads, and the decoder puts the word there that it looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.augment.word_variants import shape
from regard.text.batches.token_cache import Arrays
from regard.text.random_streams import random_fractions, random_keys

SHORTEST_COPY = 3  # characters; shorter words, but for numbers, are often not each other's translation
BLANKS = " \n\t"

Words = Iterable[Sequence[str]]  # sentences as words


class Copies:
    """The words that each pair of N has on both sides, once each."""

    def __init__(self, arrays: Mapping[str, NDArray[np.int64]]) -> None:
        self.counts = arrays["counts"]  # (N,): how many
        self.places = arrays["source"], arrays["target"]  # each among all words of its side
        self.firsts = np.cumsum(self.counts) - self.counts
        # Words that look alike are a group; `members` are the distinct words of the first group, then the next.
        self.groups, self.members, self.sizes = arrays["groups"], arrays["members"], arrays["sizes"]

    def chosen(self, share: float, chance: tuple[int, ...], which: tuple[int, ...]) -> NDArray[np.int64]:
        """Some of these words: one a pair, in a share of the pairs, drawn from two random streams."""
        pairs = (random_fractions(len(self.counts), *chance) < share) & (self.counts > 0)
        keys = random_keys(len(self.counts), *which)[pairs]
        return self.firsts[pairs] + (keys % self.counts[pairs].astype(np.uint64)).astype(np.int64)

    def like(self, words: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """For each of these words one that looks like it, by its key; frequent words are not more likely."""
        group = self.groups[words]
        firsts = np.cumsum(self.sizes) - self.sizes
        return self.members[firsts[group] + (keys % self.sizes[group].astype(np.uint64)).astype(np.int64)]


def shared_words(source: Words, target: Words) -> Arrays:
    """The arrays of Copies, from both sides as words."""
    numbers: dict[str, int] = {}  # of words of both sides
    (ours, here, pairs), (theirs, there, _) = (_words_once(side, numbers) for side in (source, target))
    both, i, j = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    texts = list(numbers)
    groups = _groups([texts[number] for number in (both & 0xFFFFFFFF).tolist()])
    return {"counts": np.bincount(both >> 32, minlength=pairs), "source": here[i], "target": there[j], **groups}


def _groups(words: Sequence[str]) -> Arrays:
    """The group of each word, the first places of each group's distinct words, and how many these are."""
    found: dict[str, dict[str, int]] = {}  # shape to words, each with its first place
    for i, word in enumerate(words):
        found.setdefault(shape(word), {}).setdefault(word, i)
    numbers = {name: number for number, name in enumerate(found)}
    return {
        "groups": np.array([numbers[shape(word)] for word in words], np.int64),
        "members": np.array([i for group in found.values() for i in group.values()], np.int64),
        "sizes": np.array([len(group) for group in found.values()], np.int64),
    }


def _counts(word: str) -> bool:
    return len(word) >= SHORTEST_COPY or word.isdigit()


def _words_once(sentences: Words, numbers: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """For each word that stands once in its sentence: sentence and number as one key, and its place. And the count."""
    keys: list[NDArray[np.int64]] = []
    count = 0
    for count, words in enumerate(sentences, start=1):
        texts = [word.strip(BLANKS) for word in words]
        named = [numbers.setdefault(text, len(numbers)) if _counts(text) else -1 for text in texts]
        row = np.array(named, np.int64)
        keys.append(np.where(row < 0, -1, row + ((count - 1) << 32)))
    flat = np.concatenate(keys) if keys else np.empty(0, np.int64)
    found, places, often = np.unique(flat, return_index=True, return_counts=True)
    once = (often == 1) & (found >= 0)
    return found[once], places[once], count
