"""Two parallel files with unequal numbers of lines, as far as their lines pair up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from regard.text.check.misalignment import LineFeatures, Segment, certain_segments, find_alignment
from regard.text.files.lines import try_lines
from regard.text.files.rows import Findings, Row

T = TypeVar("T")


@dataclass(frozen=True)
class AlignedFiles:
    """Parallel files in which some lines have no counterpart; the others are read as pairs."""

    source: Path
    target: Path
    segments: tuple[Segment, ...]
    shorter: int  # 0: the source has fewer lines, 1: the target
    is_text: bool = False
    is_prose: bool = False

    @property
    def files(self) -> Sequence[object]:
        return self.source, self.target

    def rows(self, findings: Findings) -> Iterator[Row]:
        sides = (enumerate(try_lines(path, findings), start=1) for path in (self.source, self.target))
        for source, target in self.pair_up(*sides):
            if source is not None and target is not None:
                yield source[0], source[1], target[1]

    def location(self, number: int, side: int = 0) -> str:
        """Return the location of a pair, whose number is its line in the source."""
        sign = 1 if self.shorter == 0 else -1
        starts = [(x.start + (0 if self.shorter == 0 else x.shift), sign * x.shift) for x in self.segments]
        shift = next((shift for start, shift in reversed(starts) if start < number), 0)
        return f"{self.target}:{number + shift}" if side else f"{self.source}:{number}"

    def pair_up(self, source: Iterable[T], target: Iterable[T]) -> Iterator[tuple[T | None, T | None]]:
        """Yield the lines of both files in pairs; a line without a counterpart has None beside it."""
        sides = [iter(source), iter(target)]
        short, long = sides if self.shorter == 0 else sides[::-1]
        for pair in _pair_up(short, long, self.segments):
            yield pair if self.shorter == 0 else pair[::-1]


def _pair_up(short: Iterator[T], long: Iterator[T], segments: Iterable[Segment]) -> Iterator[tuple[T | None, T | None]]:
    short_read = long_read = 0
    for segment in segments:
        for _ in range(segment.start - short_read):
            yield next(short), None
        for _ in range(segment.start + segment.shift - long_read):
            yield None, next(long)
        for _ in range(segment.stop - segment.start):
            yield next(short), next(long)
        short_read, long_read = segment.stop, segment.stop + segment.shift
    for line in short:
        yield line, None
    for line in long:
        yield None, line


@dataclass(frozen=True)
class Misalignment:
    """What is known about two files with unequal numbers of lines."""

    counts: tuple[int, int]  # lines of source and target
    first_line: int | None  # the first misaligned line, counted from 1; None if the shorter file is truncated
    aligned: AlignedFiles | None  # as far as the lines pair up; None if that is unclear
    is_certain: bool  # whether the pairs are beyond doubt


def examine_alignment(source: Path, target: Path, read: Callable[[Path], Iterable[str]]) -> Misalignment:
    """Find out which lines of two files with unequal numbers of lines belong together; `read` returns their lines."""
    features = [LineFeatures(read(path)) for path in (source, target)]
    counts = len(features[0]), len(features[1])
    shorter = int(counts[1] < counts[0])
    short, long = features if shorter == 0 else features[::-1]
    segments = find_alignment(short, long)
    first = next((segment.start for segment in segments if segment.shift), None)
    certain = certain_segments(short, long)
    pairs = certain or (segments if first is None else [])
    aligned = AlignedFiles(source, target, tuple(pairs), shorter) if pairs else None
    return Misalignment(counts, None if first is None else first + 1, aligned, certain is not None)
