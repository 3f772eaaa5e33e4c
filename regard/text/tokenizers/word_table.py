"""Sentences as words, and words with all their segmentations, in flat arrays that make it fast to sample an epoch.

N sentences   W words of all of them   D distinct words   F variants of a word   D' distinct words with all variants
C choices, the segmentations of all those words
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.augment.word_variants import Variant
from regard.text.batches.batch import TokenRows
from regard.text.random_streams import mixed_fractions
from regard.text.tokenizers.segmentations import Segmentations
from regard.text.tokenizers.special_tokens import UNKNOWN

MAX_SEGMENTED_WORDS = 200_000  # distinct words with several segmentations, the most frequent ones
MAX_TABLE_TOKENS = 40_000_000  # in all choices: 160 MB, which only writing without spaces approaches
BLOCK_SENTENCES = 65_536  # sampled together, which limits temporary memory


class WordTable:
    """Sentences whose words can be sampled with different segmentations.

    The choices of word d have numbers `firsts[d]` to `firsts[d + 1]`; the first one is the usual segmentation. Choice c
    is taken for random numbers up to `limits[c]`, which is d plus the cumulative probability, so one search through all
    limits finds the choice of a word. Its tokens are pieces[starts[c] : starts[c + 1]]. The last choice belongs to no
    word: it is UNKNOWN. Column d of `variants` contains word d in row 0 and its variants below.
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:
        self.words, self.counts = arrays["words"], arrays["counts"]  # (W,) numbers of words; (N,) words per sentence
        self.variants = arrays["variants"]  # (1 + F, D) numbers of words
        self.firsts, self.limits = arrays["firsts"], arrays["limits"]  # (D' + 1,), (C,)
        self.starts, self.pieces = arrays["starts"], arrays["pieces"]  # (C + 2,), (tokens of all choices,)
        self.unknown = len(self.limits)  # the choice for a word that is hidden from the model
        self.bounds = np.concatenate([[0], np.cumsum(self.counts)])  # (N + 1,): the first word of each sentence

    def __len__(self) -> int:
        return len(self.counts)

    def draw(
        self,
        keys: NDArray[np.uint64],
        *,
        limit: int | None = None,
        hidden: NDArray[np.int64] | None = None,
        words: NDArray[np.int32] | None = None,
    ) -> TokenRows:
        """Sample a segmentation of each sentence, as a function of its key.

        A sentence that would have more than `limit` tokens keeps its usual segmentation. `hidden` are the indices,
        sorted, of words among the W that become UNKNOWN. `words` (W,) replace the words of the table.
        """
        words = self.words if words is None else words
        hidden = np.empty(0, np.int64) if hidden is None else hidden
        flats, lengths = [], []
        for first in range(0, len(self), BLOCK_SENTENCES):
            last = min(first + BLOCK_SENTENCES, len(self))
            begin, end = self.bounds[first], self.bounds[last]
            counts, block = self.counts[first:last], words[begin:end]
            choices = np.searchsorted(self.limits, block + mixed_fractions(keys[first:last], counts), side="right")
            if limit is not None:
                too_long = self._lengths(choices, counts) > limit
                choices = np.where(np.repeat(too_long, counts), self.firsts[block], choices)
            lo, hi = np.searchsorted(hidden, [begin, end])
            choices[hidden[lo:hi] - begin] = self.unknown
            lengths.append(self._lengths(choices, counts))
            flats.append(self._tokens(choices))
        return TokenRows(np.concatenate(flats), np.concatenate(lengths)) if flats else TokenRows.of([])

    def usual_lengths(self, words: NDArray[np.int32] | None = None) -> NDArray[np.int64]:
        """Return (N,): the tokens of each sentence with the usual segmentation of its words, or of these words."""
        return self._lengths(self.firsts[self.words if words is None else words], self.counts)

    def _lengths(self, choices: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens of sentences of `counts` words with these choices."""
        ends = np.concatenate([[0], np.cumsum(self.starts[choices + 1] - self.starts[choices])])
        return np.diff(ends[np.concatenate([[0], np.cumsum(counts)])])

    def _tokens(self, choices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the tokens of choices, concatenated."""
        starts = self.starts[choices]
        lengths = self.starts[choices + 1] - starts
        shift = starts - (np.cumsum(lengths) - lengths)  # from an index of the result to an index of `pieces`
        return self.pieces[np.repeat(shift, lengths) + np.arange(lengths.sum())]


def table_arrays(
    sentences: Iterable[Sequence[str]],
    segmentations: Segmentations,
    *,
    max_words: int = MAX_SEGMENTED_WORDS,
    variants: Sequence[Variant] = (),
) -> dict[str, NDArray]:
    """Return the arrays of a WordTable; only the `max_words` most frequent words have more than one segmentation."""
    numbers: dict[str, int] = {}
    words, counts = array("i"), array("q")
    for sentence in sentences:
        words.extend([numbers.setdefault(word, len(numbers)) for word in sentence])
        counts.append(len(sentence))
    word_numbers = np.array(words, np.int32)
    distinct = list(numbers)
    table: list[Sequence[int]] = [range(len(distinct))]
    table += [[numbers.setdefault(vary(word), len(numbers)) for word in distinct] for vary in variants]
    frequency = np.bincount(word_numbers, minlength=len(numbers))
    is_sampled = np.zeros(len(numbers), bool)
    is_sampled[np.argsort(-frequency, kind="stable")[:max_words]] = True
    firsts, limits, starts, pieces = array("q", [0]), array("d"), array("q", [0]), array("i")
    for word, number in numbers.items():
        has_room = len(pieces) < MAX_TABLE_TOKENS
        choices = segmentations.choices(word) if is_sampled[number] and has_room else segmentations.usual(word)
        total, cumulative = sum(choices.values()), 0.0
        for tokens, weight in choices.items():
            cumulative += weight
            limits.append(number + cumulative / total)
            pieces.extend(tokens)
            starts.append(len(pieces))
        limits[-1] = number + 1.0  # despite rounding
        firsts.append(len(limits))
    pieces.append(UNKNOWN)
    starts.append(len(pieces))
    return {
        "words": word_numbers,
        "counts": np.array(counts, np.int64),
        "variants": np.array(table, np.int32),
        "firsts": np.array(firsts, np.int64),
        "limits": np.array(limits, np.float64),
        "starts": np.array(starts, np.int64),
        "pieces": np.array(pieces, np.int32),
    }
