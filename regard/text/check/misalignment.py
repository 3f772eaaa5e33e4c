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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LENGTH_SPREAD = 0.35  # standard deviation of the logarithm of a true pair's length ratio
MAX_DEVIATION = 3.0  # standard deviations; beyond them a pair is wrong, and how wrong does not matter
SAME_END_WEIGHT, SHARED_WORD_WEIGHT = 0.7, 0.6  # log-likelihood, roughly
SHIFT_PENALTY = 4.0  # evidence that a shift must add to be accepted
CERTAIN_EVIDENCE, MEAN_EVIDENCE = 8.0, 0.3  # evidence for an alignment beyond doubt: in total, and more for each pair
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


class Segment(NamedTuple):
    """Lines `start` to `stop` of the shorter file, counted from 0; each belongs to the other's line `shift` further."""

    start: int
    stop: int
    shift: int


def find_alignment(shorter: LineFeatures, longer: LineFeatures) -> list[Segment]:
    """Return the most likely alignment.

    Dynamic programming finds the alignment with the most evidence that skips lines of the longer file at few points.
    The shift only grows along the file; best[i] is the evidence for the lines before i if the last of them has the
    current shift. The points at which the best alignment may leave a shift are those where the gain has a new maximum.
    """
    count, missing = len(shorter), len(longer) - len(shorter)
    if not count:
        return []
    shifts = [0, *range(1, min(missing, MAX_SHIFTS) + 1), *([missing] if missing > MAX_SHIFTS else [])]
    best = np.concatenate([[0.0], np.cumsum(_evidence(shorter, longer, 0))])  # (count + 1,)
    best_evidence, last = best[-1], 0
    switches: list[NDArray[np.int32]] = []  # for each shift but the first, where alignments may have switched to it
    for i, shift in enumerate(shifts[1:], start=1):
        total = np.concatenate([[0.0], np.cumsum(_evidence(shorter, longer, shift))])
        gain = best - total - SHIFT_PENALTY
        best_gain = np.maximum.accumulate(gain)
        switches.append(np.flatnonzero(gain == best_gain).astype(np.int32))
        best = total + best_gain
        if best[-1] > best_evidence:
            best_evidence, last = best[-1], i
    segments, stop = [], count
    for i in range(last, -1, -1):  # back from the last shift of the best alignment
        lines = switches[i - 1] if i else None
        start = 0 if lines is None else int(lines[np.searchsorted(lines, stop, side="right") - 1])
        if start < stop:
            segments.append(Segment(start, stop, shifts[i]))
        stop = start
    return segments[::-1]


def certain_segments(shorter: LineFeatures, longer: LineFeatures) -> list[Segment] | None:
    """Return the parts of the best alignment that are beyond doubt; None if they are less than half of the lines.

    Where a line is missing is known within a few lines, and those lines are left out. A part is in doubt if its pairs
    fit hardly better than pairs of neighboring lines, as in files that are not translations of each other.
    """
    segments = find_alignment(shorter, longer)
    certain: list[Segment] = []
    for i, segment in enumerate(segments):
        start, stop = segment.start, segment.stop
        if i > 0:
            start = _certain_from(shorter, longer, segments[i - 1], segment)
        if i + 1 < len(segments):
            stop = _certain_until(shorter, longer, segment, segments[i + 1])
        part = Segment(start, stop, segment.shift)
        if start < stop and _is_decisive(shorter, longer, part):
            certain.append(part)
    pairs = sum(part.stop - part.start for part in certain)
    return certain if certain and 2 * pairs >= len(shorter) else None


def _certain_from(shorter: LineFeatures, longer: LineFeatures, before: Segment, segment: Segment) -> int:
    """Return the first line of a segment that clearly fits its shift better than the shift before."""
    lines = slice(segment.start, segment.stop)
    gain = _evidence(shorter, longer, segment.shift)[lines] - _evidence(shorter, longer, before.shift)[lines]
    doubtful = np.flatnonzero(np.cumsum(gain) < CERTAIN_EVIDENCE)
    return segment.start + (int(doubtful[-1]) + 2 if len(doubtful) else 1)


def _certain_until(shorter: LineFeatures, longer: LineFeatures, segment: Segment, after: Segment) -> int:
    """Return the end of the lines of a segment that clearly fit its shift better than the shift after."""
    lines = slice(segment.start, segment.stop)
    gain = _evidence(shorter, longer, segment.shift)[lines] - _evidence(shorter, longer, after.shift)[lines]
    doubtful = np.flatnonzero(np.cumsum(gain[::-1]) < CERTAIN_EVIDENCE)
    return segment.stop - (int(doubtful[-1]) + 2 if len(doubtful) else 1)


def _is_decisive(shorter: LineFeatures, longer: LineFeatures, segment: Segment) -> bool:
    """Whether the pairs of a segment fit clearly better than the same lines paired with neighbors."""
    lines = slice(segment.start, segment.stop)
    evidence = float(_evidence(shorter, longer, segment.shift)[lines].sum())
    last_shift = len(longer) - len(shorter)
    others = [shift for shift in (segment.shift - 1, segment.shift + 1) if 0 <= shift <= last_shift]
    neighbors = max(float(_evidence(shorter, longer, shift)[lines].sum()) for shift in others)
    return evidence - neighbors > CERTAIN_EVIDENCE + MEAN_EVIDENCE * (segment.stop - segment.start)


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
