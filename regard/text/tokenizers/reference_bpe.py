"""Byte pair encoding in plain Python: what sentencepiece does for us, short enough to read.

Sennrich et al. 2016, "Neural machine translation of rare words with subword units", algorithm 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

Pair = tuple[str, str]


def learn_merges(text: str, count: int) -> list[Pair]:
    """Join the most frequent pair of neighbouring pieces, over and over; of equally frequent ones the oldest pieces."""
    words = Counter(tuple("▁" + word) for word in text.split())  # every word in pieces: at first, characters
    age = {piece: i for i, piece in enumerate(sorted(set().union(*words)))}
    merges: list[Pair] = []
    for _ in range(count):
        pairs = Counter[Pair]()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], age[pair[0]], age[pair[1]]))
        merges.append(best)
        age.setdefault("".join(best), len(age))
        words = Counter({merge_pair(word, best): times for word, times in words.items()})
    return merges


def apply_merges(text: str, merges: Sequence[Pair]) -> list[str]:
    """Cut a text into pieces: in every word, the merge that was learned first is done first."""
    rank = {pair: i for i, pair in enumerate(merges)}
    pieces: list[str] = []
    for text_word in text.split():
        word = tuple("▁" + text_word)
        while known := [pair for pair in pairwise(word) if pair in rank]:
            word = merge_pair(word, min(known, key=rank.__getitem__))
        pieces += word
    return pieces


def merge_pair(word: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """The word with every occurrence of the pair joined, from left to right."""
    merged: list[str] = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)
