"""Pairs as people type them: several one after another, and without the mark at their end.

Both are done to tokens, for all pairs at once. N pairs   V tokens of the vocabulary
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.text.batches.batch import Rows
from regard.text.random_streams import random_fractions, random_keys
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

MOST_AFTER = 3  # pairs that may follow one; one, two and three are equally likely
UNKNOWN_SHARE = 0.1  # of what follows a pair, where there are unknown words: only such a word, as a smiley is
MARKS = ".!?…。！？"
BLANKS = f"{SPACE} \u00a0\u202f"  # which French has before some marks
LONGEST_MARK = 3  # tokens

Sides = tuple[Rows, Rows]
Stream = tuple[int, ...]


def join_pairs(
    sides: Sides, *, share: float, stream: Stream, limit: int, among: NDArray[np.int64], unknown: bool
) -> Sides:
    """A share of the pairs followed by one to three others, drawn from the rows `among`; both sides alike.

    Where a side would get more than `limit` tokens the pair stays alone. With `unknown`, now and then a word that is
    UNKNOWN on both sides follows instead.
    """
    count = len(sides[0])
    more = 1 + (random_keys(count, *stream, 0) % np.uint64(MOST_AFTER)).astype(np.int64)
    more[random_fractions(count, *stream, 1) >= share] = 0
    rows = np.repeat(np.arange(count), 1 + more)  # the pair itself, and one place for each that follows
    after = np.ones(len(rows), bool)
    after[np.cumsum(1 + more) - 1 - more] = False
    drawn = among[(random_keys(int(more.sum()), *stream, 2) % np.uint64(len(among))).astype(np.int64)]
    if unknown:
        drawn[random_fractions(len(drawn), *stream, 3) < UNKNOWN_SHARE] = count  # the row that _with_unknown adds
    owner = rows.copy()
    rows[after] = drawn
    source, target = (_with_unknown(side) for side in sides)
    sums = (np.bincount(owner, weights=side.lengths[rows], minlength=count) for side in (source, target))
    fits = np.logical_and(*(total <= limit for total in sums))
    kept = ~after | fits[owner]
    rows, counts = rows[kept], np.bincount(owner[kept], minlength=count)
    return _gathered(source, rows, counts), _gathered(target, rows, counts)


def drop_marks(
    sides: Sides, marks: tuple[NDArray[np.bool_], NDArray[np.bool_]], *, share: float, stream: Stream
) -> Sides:
    """A share of the pairs without the mark at their end, where both sides have one and something before it."""
    chosen = random_fractions(len(sides[0]), *stream) < share
    ends = [_mark_lengths(side, mark) for side, mark in zip(sides, marks, strict=True)]
    chosen &= (ends[0] > 0) & (ends[1] > 0)
    source, target = (_shortened(side, np.where(chosen, end, 0)) for side, end in zip(sides, ends, strict=True))
    return source, target


def final_marks(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """(V,): whether a token is nothing but marks that end a sentence, or the blank before them."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    return np.array([not piece.strip(MARKS + BLANKS) for piece in pieces])


def _mark_lengths(side: Rows, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(N,): how many tokens the mark at the end has; 0 where there is none, or nothing else."""
    count = np.zeros(len(side), np.int64)
    if not len(side.flat):
        return count
    last = side.starts + side.lengths - 1
    more = side.lengths > 0
    for i in range(LONGEST_MARK):
        more &= marks[side.flat[np.where(more, last - i, 0)]]
        count[more] += 1
        more &= side.lengths > count
    return np.where(count < side.lengths, count, 0)


def _shortened(side: Rows, ends: NDArray[np.int64]) -> Rows:
    """Each row without its last `ends` tokens."""
    column = np.arange(len(side.flat)) - np.repeat(side.starts, side.lengths)
    lengths = side.lengths - ends
    return Rows(side.flat[column < np.repeat(lengths, side.lengths)], lengths)


def _with_unknown(side: Rows) -> Rows:
    """The rows, and one more at the end that is UNKNOWN."""
    return Rows(np.append(side.flat, np.int32(UNKNOWN)), np.append(side.lengths, 1))


def _gathered(side: Rows, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> Rows:
    """New rows, each of `counts` old ones, which `rows` lists."""
    lengths = side.lengths[rows]
    moved = side.starts[rows] - (np.cumsum(lengths) - lengths)  # from the place in the result to that in `flat`
    flat = side.flat[np.repeat(moved, lengths) + np.arange(lengths.sum())]
    owner = np.repeat(np.arange(len(counts)), counts)
    return Rows(flat, np.bincount(owner, weights=lengths, minlength=len(counts)).astype(np.int64))
