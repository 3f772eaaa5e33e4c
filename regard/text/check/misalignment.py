"""Find where two files that should be parallel lose their alignment: the line that one of them lost or gained.

The two sides of a true pair have similar lengths, the same final punctuation, the same numbers, and some words with the
same beginning (names, and words that related languages share). Each of these is weak evidence. But after a lost line
every pair is wrong, and every pair shifted by one is right, so the sums over thousands of pairs locate the line within
a few lines.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

LENGTH_SPREAD = 0.35  # standard deviation of the logarithm of a true pair's length ratio
MAX_DEVIATION = 3.0  # standard deviations; beyond them a pair is wrong, and how wrong does not matter
SAME_END_WEIGHT, SHARED_WORD_WEIGHT = 0.7, 0.6  # log-likelihood, roughly
SHIFT_PENALTY = 4.0  # evidence that a shift must add to be accepted
MAX_SHIFTS = 40  # points at which lines may be missing; more are treated as one
PREFIX_LETTERS = 4  # of a word, which related languages may share
END_MARKS = {mark: i for i, marks in enumerate([".。।", "?？؟", "!！", ":：;", "…", ",、"], start=1) for mark in marks}
WORDS = re.compile(r"\d+|[^\W\d_]{3,}")


class LineFeatures:
    """Features of each line of a file that are compared with those of the other file: 13 bytes per line."""

    def __init__(self, lines: Iterable[str]) -> None:
        lengths, ends, words = array("i"), array("b"), array("Q")
        for line in lines:
            text = line.strip().rstrip("\"'»”’)")
            lengths.append(len(text))
            ends.append(END_MARKS.get(text[-1:], 0))
            words.append(_word_bits(text))
        self.lengths = np.array(lengths, np.float32)
        self.ends = np.array(ends, np.int8)
        self.words = np.array(words, np.uint64)

    def __len__(self) -> int:
        return len(self.lengths)


def find_misalignment(shorter: LineFeatures, longer: LineFeatures) -> int | None:
    """Return the first misaligned line, counted from 1, or None if the shorter file is just truncated.

    Dynamic programming finds the alignment with the most evidence that skips lines of the longer file at few points.
    The shift only grows along the file; best[i] is the evidence for the lines before i if the last of them has the
    current shift.
    """
    count, missing = len(shorter), len(longer) - len(shorter)
    if not count:
        return None
    shifts = [*range(1, min(missing, MAX_SHIFTS) + 1), *([missing] if missing > MAX_SHIFTS else [])]
    unshifted = _evidence(shorter, longer, 0)
    best = np.concatenate([[0.0], np.cumsum(unshifted)])  # (count + 1,)
    first_shifted = np.full(count + 1, count)  # the line at which the best alignment leaves shift 0
    best_evidence, first_line = best[-1], count
    for shift in shifts:
        total = np.concatenate([[0.0], np.cumsum(_evidence(shorter, longer, shift))])
        gain = best - total - SHIFT_PENALTY
        best_gain = np.maximum.accumulate(gain)
        # the line at which the best alignment leaves the previous shift
        switch = np.maximum.accumulate(np.where(gain == best_gain, np.arange(count + 1), 0))
        first_shifted = switch if shift == 1 else first_shifted[switch]
        best = total + best_gain
        if best[-1] > best_evidence:
            best_evidence, first_line = best[-1], int(first_shifted[-1])
    return first_line + 1 if first_line < count else None


def _evidence(shorter: LineFeatures, longer: LineFeatures, shift: int) -> NDArray[np.float64]:
    """Return, for each line of the shorter file, the evidence that it belongs to the other's line `shift` further."""
    count = len(shorter)
    shifted = slice(shift, shift + count)
    scale = longer.lengths.mean() / max(float(shorter.lengths.mean()), 1.0)
    deviation = np.log((longer.lengths[shifted] + 3) / (shorter.lengths * scale + 3)) / LENGTH_SPREAD
    score = -0.5 * np.minimum(np.abs(deviation), MAX_DEVIATION) ** 2
    score = score + np.where(shorter.ends == longer.ends[shifted], SAME_END_WEIGHT, -SAME_END_WEIGHT)
    return score + SHARED_WORD_WEIGHT * _bits_set(shorter.words & longer.words[shifted])


def _word_bits(text: str) -> int:
    """Return the set of numbers and word beginnings of a text, each hashed to one of 64 bits."""
    bits = 0
    for word in WORDS.findall(text):
        bits |= 1 << (zlib.crc32(word[:PREFIX_LETTERS].lower().encode()) & 63)
    return bits


def _bits_set(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    return np.unpackbits(words.view(np.uint8).reshape(len(words), 8), axis=1).sum(axis=1, dtype=np.int64)
