"""Sentences as words and words in all their segmentations, in flat arrays: so an epoch is drawn in a moment.

N sentences   W words of all of them   D distinct words   F variants of a word   D' distinct words with all variants
C choices, the segmentations of all those words
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.augment.word_variants import Variant
from regard.text.batches.batch import Rows
from regard.text.random_streams import mixed_fractions
from regard.text.tokenizers.segmentations import Segmentations
from regard.text.tokenizers.special_tokens import UNKNOWN

MOST_WORDS = 200_000  # distinct words that are cut in several ways, the most frequent ones
MOST_PIECES = 40_000_000  # in all their choices: 160 MB, which only writing without spaces comes near
BLOCK = 65_536  # sentences that are drawn together: what a draw needs beside its result stays small


class WordTable:
    """Sentences whose words can be drawn in other pieces again and again.

    The choices of word d are numbers `firsts[d]` to `firsts[d + 1]`, of which the first is the usual one. Choice c is
    taken for random numbers up to `limits[c]`, which is d plus the sum of probabilities so far, so that one search
    through all limits finds the choice of a word. Its tokens are pieces[starts[c] : starts[c + 1]]. The last choice
    is no word's: UNKNOWN. Word d stands beside its variants in column d of `variants`, itself in row 0.
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        self.words, self.counts = arrays["words"], arrays["counts"]  # (W,) numbers of words; (N,) words a sentence
        self.variants = arrays["variants"]  # (1 + F, D) numbers of words
        self.firsts, self.limits = arrays["firsts"], arrays["limits"]  # (D' + 1,), (C,)
        self.starts, self.pieces = arrays["starts"], arrays["pieces"]  # (C + 2,), (tokens of all choices,)
        self.unknown = len(self.limits)  # the choice that stands for a word which the model shall not know
        self.bounds = np.concatenate([[0], np.cumsum(self.counts)])  # (N + 1,): where sentences begin among the words

    def __len__(self) -> int:
        return len(self.counts)

    def draw(
        self,
        keys: NDArray[np.uint64],
        *,
        limit: int | None = None,
        hidden: NDArray[np.int64] | None = None,
        words: NDArray[np.int32] | None = None,
    ) -> Rows:
        """All sentences in new pieces, which are a function of each one's key.

        A sentence that would have more than `limit` tokens stays in its usual pieces. `hidden` are words, by their
        number among the W and in order, in whose place UNKNOWN is written. `words` (W,) stand in the place of its own.
        """
        own = self.words if words is None else words
        hidden = np.empty(0, np.int64) if hidden is None else hidden
        flats, lengths = [], []
        for first in range(0, len(self), BLOCK):
            last = min(first + BLOCK, len(self))
            begin, end = self.bounds[first], self.bounds[last]
            counts, here = self.counts[first:last], own[begin:end]
            choices = np.searchsorted(self.limits, here + mixed_fractions(keys[first:last], counts), side="right")
            if limit is not None:
                long = self._lengths(choices, counts) > limit
                choices = np.where(np.repeat(long, counts), self.firsts[here], choices)
            lo, hi = np.searchsorted(hidden, [begin, end])
            choices[hidden[lo:hi] - begin] = self.unknown
            lengths.append(self._lengths(choices, counts))
            flats.append(self._tokens(choices))
        return Rows(np.concatenate(flats), np.concatenate(lengths)) if flats else Rows.of([])

    def usual_lengths(self, words: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
        """(N,): how many tokens each sentence has when each of its words, or of these, is cut in the usual way."""
        return self._lengths(self.firsts[self.words if words is None else words], self.counts)

    def _lengths(self, choices: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tokens sentences of `counts` words have when these choices are taken."""
        ends = np.concatenate([[0], np.cumsum(self.starts[choices + 1] - self.starts[choices])])
        return np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])

    def _tokens(self, choices: NDArray[np.int64]) -> NDArray[np.int32]:
        """The tokens of choices, one after another."""
        starts = self.starts[choices]
        lengths = self.starts[choices + 1] - starts
        moved = starts - (np.cumsum(lengths) - lengths)  # from the place in the result to that in `pieces`
        return self.pieces[np.repeat(moved, lengths) + np.arange(lengths.sum())]


def table_arrays(
    sentences: Iterable[Sequence[str]],
    ways: Segmentations,
    *,
    most: int = MOST_WORDS,
    variants: Sequence[Variant] = (),
) -> dict[str, NDArray]:
    """The arrays of a WordTable from sentences as words; all but the `most` frequent ones have their usual pieces."""
    numbers: dict[str, int] = {}
    words, counts = array("i"), array("q")
    for sentence in sentences:
        words.extend([numbers.setdefault(word, len(numbers)) for word in sentence])
        counts.append(len(sentence))
    found = np.array(words, np.int32)
    own = list(numbers)
    varied = [range(len(own)), *([numbers.setdefault(vary(word), len(numbers)) for word in own] for vary in variants)]
    often = np.bincount(found, minlength=len(numbers))
    several = np.zeros(len(numbers), bool)
    several[np.argsort(-often, kind="stable")[:most]] = True
    firsts, limits, starts, pieces = array("q", [0]), array("d"), array("q", [0]), array("i")
    for word, number in numbers.items():
        room = len(pieces) < MOST_PIECES
        listed = ways.choices(word) if several[number] and room else ways.usual(word)
        total, sum_so_far = sum(listed.values()), 0.0
        for tokens, weight in listed.items():
            sum_so_far += weight
            limits.append(number + sum_so_far / total)
            pieces.extend(tokens)
            starts.append(len(pieces))
        limits[-1] = number + 1.0  # also where sums are rounded
        firsts.append(len(limits))
    pieces.append(UNKNOWN)
    starts.append(len(pieces))
    return {
        "words": found,
        "counts": np.array(counts, np.int64),
        "variants": np.array(varied, np.int32),
        "firsts": np.array(firsts, np.int64),
        "limits": np.array(limits, np.float64),
        "starts": np.array(starts, np.int64),
        "pieces": np.array(pieces, np.int32),
    }
