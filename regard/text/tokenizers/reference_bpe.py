"""Byte pair encoding in plain Python: the algorithm of sentencepiece, short enough to read.

Sennrich et al. 2016, "Neural machine translation of rare words with subword units", algorithm 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

Pair = tuple[str, str]


def learn_merges(text: str, count: int) -> list[Pair]:
    """Merge the most frequent pair of adjacent subwords, `count` times; ties go to the oldest subwords."""
    words = Counter(tuple("▁" + word) for word in text.split())  # every word as subwords: at first, characters
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
    """Segment a text: in every word, merges are applied in the order in which they were learned."""
    rank = {pair: i for i, pair in enumerate(merges)}
    pieces: list[str] = []
    for text_word in text.split():
        word = tuple("▁" + text_word)
        while known := [pair for pair in pairwise(word) if pair in rank]:
            word = merge_pair(word, min(known, key=rank.__getitem__))
        pieces += word
    return pieces


def merge_pair(word: Sequence[str], pair: Pair) -> tuple[str, ...]:
    """Merge every occurrence of the pair in a word, from left to right."""
    merged: list[str] = []
    for piece in word:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return tuple(merged)
