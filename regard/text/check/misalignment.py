"""Where two files that should be parallel cease to be: the line at which one of them lost or gained something.

A pair that belongs together is alike in length, in how it ends, in its numbers and in the beginnings of some words
(names, and what related languages share). Each is weak evidence. But behind a lost line every pair is a wrong one,
and those behind it shifted by one are right, so the sums over thousands of pairs tell the place within a few lines.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

SPREAD = 0.35  # of the logarithm of a true pair's ratio of lengths
FURTHEST = 3.0  # spreads; beyond them a pair is wrong, and how wrong does not matter
SAME_END, SHARED_WORD = 0.7, 0.6  # weights of the evidence
SWITCH = 4.0  # evidence that a shift must bring before it is believed
MOST_SHIFTS = 40  # places at which lines may be missing; more are taken as one
BEGINNING = 4  # letters of a word that related languages may share
ENDS = {mark: i for i, marks in enumerate([".。।", "?？؟", "!！", ":：;", "…", ",、"], start=1) for mark in marks}
WORDS = re.compile(r"\d+|[^\W\d_]{3,}")


class Traits:
    """What is compared of each line of a file: 13 bytes a line."""

    def __init__(self, lines: Iterable[str]) -> None:
        lengths, ends, words = array("i"), array("b"), array("Q")
        for line in lines:
            text = line.strip().rstrip("\"'»”’)")
            lengths.append(len(text))
            ends.append(ENDS.get(text[-1:], 0))
            words.append(_word_bits(text))
        self.lengths = np.array(lengths, np.float32)
        self.ends = np.array(ends, np.int8)
        self.words = np.array(words, np.uint64)

    def __len__(self) -> int:
        return len(self.lengths)


def find_slip(shorter: Traits, longer: Traits) -> int | None:
    """The first line, counted from 1, that is not the other file's; None where the shorter one just ends too early.

    The way through both files that skips lines of the longer one at few places and has the most evidence, by dynamic
    programming: the shift j only grows, and best[i] is the evidence for the lines before i if the last of them has it.
    """
    count, missing = len(shorter), len(longer) - len(shorter)
    if not count:
        return None
    shifts = [*range(1, min(missing, MOST_SHIFTS) + 1), *([missing] if missing > MOST_SHIFTS else [])]
    base = _evidence(shorter, longer, 0)
    best = np.concatenate([[0.0], np.cumsum(base)])  # (count + 1,)
    first = np.full(count + 1, count)  # where the best way left shift 0
    found, slip = best[-1], count
    for shift in shifts:
        total = np.concatenate([[0.0], np.cumsum(_evidence(shorter, longer, shift))])
        gain = best - total - SWITCH
        ahead = np.maximum.accumulate(gain)
        left = np.maximum.accumulate(
            np.where(gain == ahead, np.arange(count + 1), 0)
        )  # where the way left the last one
        first = left if shift == 1 else first[left]
        best = total + ahead
        if best[-1] > found:
            found, slip = best[-1], int(first[-1])
    return slip + 1 if slip < count else None


def _evidence(shorter: Traits, longer: Traits, shift: int) -> NDArray[np.float64]:
    """For each line of the shorter file, how much speaks for the other's line that is `shift` further."""
    count = len(shorter)
    there = slice(shift, shift + count)
    scale = longer.lengths.mean() / max(float(shorter.lengths.mean()), 1.0)
    ratio = np.log((longer.lengths[there] + 3) / (shorter.lengths * scale + 3)) / SPREAD
    score = -0.5 * np.minimum(np.abs(ratio), FURTHEST) ** 2
    score = score + np.where(shorter.ends == longer.ends[there], SAME_END, -SAME_END)
    return score + SHARED_WORD * _bits_set(shorter.words & longer.words[there])


def _word_bits(text: str) -> int:
    """A set of the beginnings of words and of numbers, each as one of 64 bits."""
    bits = 0
    for word in WORDS.findall(text):
        bits |= 1 << (zlib.crc32(word[:BEGINNING].lower().encode()) & 63)
    return bits


def _bits_set(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.unpackbits(words.view(np.uint8).reshape(len(words), 8), axis=1).sum(axis=1, dtype=np.int64)
