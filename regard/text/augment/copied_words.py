"""Words that occur on both sides of a pair. Some are hidden in training, so that a model learns to copy unknown words.

The model learns to write UNKNOWN for an UNKNOWN in its input, and the decoder replaces it by the attended source word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.augment.word_variants import shape
from regard.text.batches.token_cache import Arrays
from regard.text.random_streams import random_fractions, random_keys

MIN_COPY_CHARACTERS = 3  # shorter words, except numbers, are often not translations of each other
BLANKS = " \n\t"

Words = Iterable[Sequence[str]]  # sentences as words


class SharedWords:
    """The words that occur exactly once on each side of a pair, for N pairs."""

    def __init__(self, arrays: Mapping[str, NDArray[np.int64]]) -> None:
        self.counts = arrays["counts"]  # (N,): shared words of each pair
        self.positions = arrays["source"], arrays["target"]  # of each shared word among all words of its side
        self.firsts = np.cumsum(self.counts) - self.counts
        # Words of the same shape form a group; `members` are the distinct words of the first group, then of the next.
        self.groups, self.members, self.sizes = arrays["groups"], arrays["members"], arrays["sizes"]

    def chosen(self, share: float, chance: tuple[int, ...], which: tuple[int, ...]) -> NDArray[np.int64]:
        """Choose one word per pair, in a fraction of the pairs, with two random streams."""
        pairs = (random_fractions(len(self.counts), *chance) < share) & (self.counts > 0)
        keys = random_keys(len(self.counts), *which)[pairs]
        return self.firsts[pairs] + (keys % self.counts[pairs].astype(np.uint64)).astype(np.int64)

    def like(self, words: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Choose a word of the same shape for each of these words, by its key; frequent words are not more likely."""
        group = self.groups[words]
        firsts = np.cumsum(self.sizes) - self.sizes
        return self.members[firsts[group] + (keys % self.sizes[group].astype(np.uint64)).astype(np.int64)]


def shared_words(source: Words, target: Words) -> Arrays:
    """Return the arrays of SharedWords, given the words of both sides."""
    numbers: dict[str, int] = {}  # of the words of both sides
    (ours, here, pairs), (theirs, there, _) = (_words_once(side, numbers) for side in (source, target))
    both, i, j = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    texts = list(numbers)
    groups = _groups([texts[number] for number in (both & 0xFFFFFFFF).tolist()])
    return {"counts": np.bincount(both >> 32, minlength=pairs), "source": here[i], "target": there[j], **groups}


def _groups(words: Sequence[str]) -> Arrays:
    """Return the group of each word, the first positions of each group's distinct words, and their number."""
    first_positions: dict[str, dict[str, int]] = {}  # shape -> word -> its first position
    for i, word in enumerate(words):
        first_positions.setdefault(shape(word), {}).setdefault(word, i)
    numbers = {name: number for number, name in enumerate(first_positions)}
    return {
        "groups": np.array([numbers[shape(word)] for word in words], np.int64),
        "members": np.array([i for group in first_positions.values() for i in group.values()], np.int64),
        "sizes": np.array([len(group) for group in first_positions.values()], np.int64),
    }


def _is_copyable(word: str) -> bool:
    return len(word) >= MIN_COPY_CHARACTERS or word.isdigit()


def _words_once(sentences: Words, numbers: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return a key (sentence and word) and the position of each word that is unique in its sentence; and N."""
    keys: list[NDArray[np.int64]] = []
    count = 0
    for count, words in enumerate(sentences, start=1):
        texts = [word.strip(BLANKS) for word in words]
        word_numbers = [numbers.setdefault(text, len(numbers)) if _is_copyable(text) else -1 for text in texts]
        row = np.array(word_numbers, np.int64)
        keys.append(np.where(row < 0, -1, row + ((count - 1) << 32)))
    flat = np.concatenate(keys) if keys else np.empty(0, np.int64)
    unique_keys, positions, occurrences = np.unique(flat, return_index=True, return_counts=True)
    once = (occurrences == 1) & (unique_keys >= 0)
    return unique_keys[once], positions[once], count
