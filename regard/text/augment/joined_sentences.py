"""Join pairs to longer texts and drop final punctuation, as in texts that people type.

Both work on tokens, for all pairs at once. N pairs   V tokens of the vocabulary
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regard.text.batches.batch import TokenRows
from regard.text.random_streams import random_fractions, random_keys
from regard.text.tokenizers.special_tokens import UNKNOWN
from regard.text.tokenizers.tokenizer import SPACE, Tokenizer

MAX_FOLLOWING = 3  # pairs that may follow a pair; one, two and three are equally likely
UNKNOWN_SHARE = 0.1  # of the pairs that follow, if there are unknown words: they are only such a word, like a smiley
MARKS = ".!?…。！？"
BLANKS = f"{SPACE} \u00a0\u202f"  # which French puts before some marks
MAX_MARK_TOKENS = 3

Sides = tuple[TokenRows, TokenRows]
Stream = tuple[int, ...]


def join_pairs(
    sides: Sides, *, share: float, stream: Stream, limit: int, among: NDArray[np.int64], unknown: bool
) -> Sides:
    """Append one to three other pairs, drawn from the rows `among`, to a fraction of the pairs; both sides alike.

    A pair that would have more than `limit` tokens on a side stays alone. With `unknown`, some of the appended pairs
    are a word that is UNKNOWN on both sides.
    """
    count = len(sides[0])
    following = 1 + (random_keys(count, *stream, 0) % np.uint64(MAX_FOLLOWING)).astype(np.int64)
    following[random_fractions(count, *stream, 1) >= share] = 0
    rows = np.repeat(np.arange(count), 1 + following)  # the pair itself, and a slot for each that follows
    is_appended = np.ones(len(rows), bool)
    is_appended[np.cumsum(1 + following) - 1 - following] = False
    drawn = among[(random_keys(int(following.sum()), *stream, 2) % np.uint64(len(among))).astype(np.int64)]
    if unknown:
        drawn[random_fractions(len(drawn), *stream, 3) < UNKNOWN_SHARE] = count  # the row that _with_unknown adds
    owner = rows.copy()
    rows[is_appended] = drawn
    source, target = (_with_unknown(side) for side in sides)
    sums = (np.bincount(owner, weights=side.lengths[rows], minlength=count) for side in (source, target))
    fits = np.logical_and(*(total <= limit for total in sums))
    selected = ~is_appended | fits[owner]
    rows, counts = rows[selected], np.bincount(owner[selected], minlength=count)
    return _gathered(source, rows, counts), _gathered(target, rows, counts)


def drop_marks(
    sides: Sides, marks: tuple[NDArray[np.bool_], NDArray[np.bool_]], *, share: float, stream: Stream
) -> Sides:
    """Remove the final punctuation from a fraction of the pairs, if both sides have some and text before it."""
    chosen = random_fractions(len(sides[0]), *stream) < share
    ends = [_mark_lengths(side, mark) for side, mark in zip(sides, marks, strict=True)]
    chosen &= (ends[0] > 0) & (ends[1] > 0)
    source, target = (_shortened(side, np.where(chosen, end, 0)) for side, end in zip(sides, ends, strict=True))
    return source, target


def final_marks(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return (V,): whether a token consists only of sentence-final punctuation or the blank before it."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    return np.array([not piece.strip(MARKS + BLANKS) for piece in pieces])


def _mark_lengths(side: TokenRows, marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return (N,): the tokens of the final punctuation; 0 if there is none, or nothing else."""
    count = np.zeros(len(side), np.int64)
    if not len(side.flat):
        return count
    last = side.starts + side.lengths - 1
    is_mark = side.lengths > 0
    for i in range(MAX_MARK_TOKENS):
        is_mark &= marks[side.flat[np.where(is_mark, last - i, 0)]]
        count[is_mark] += 1
        is_mark &= side.lengths > count
    return np.where(count < side.lengths, count, 0)


def _shortened(side: TokenRows, ends: NDArray[np.int64]) -> TokenRows:
    """Remove the last `ends` tokens of each row."""
    column = np.arange(len(side.flat)) - np.repeat(side.starts, side.lengths)
    lengths = side.lengths - ends
    return TokenRows(side.flat[column < np.repeat(lengths, side.lengths)], lengths)


def _with_unknown(side: TokenRows) -> TokenRows:
    """Append a row that is UNKNOWN."""
    return TokenRows(np.append(side.flat, np.int32(UNKNOWN)), np.append(side.lengths, 1))


def _gathered(side: TokenRows, rows: NDArray[np.int64], counts: NDArray[np.int64]) -> TokenRows:
    """Concatenate old rows, listed in `rows`, to new ones; new row i consists of counts[i] old rows."""
    lengths = side.lengths[rows]
    shift = side.starts[rows] - (np.cumsum(lengths) - lengths)  # from an index of the result to an index of `flat`
    flat = side.flat[np.repeat(shift, lengths) + np.arange(lengths.sum())]
    owner = np.repeat(np.arange(len(counts)), counts)
    return TokenRows(flat, np.bincount(owner, weights=lengths, minlength=len(counts)).astype(np.int64))
