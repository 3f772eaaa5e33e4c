"""Where two files cease to be parallel: each kind of evidence suffices where it is the only one."""

from __future__ import annotations

from random import Random

import pytest

from regard.demo.corpus import demo_pairs
from regard.text.check.misalignment import LineFeatures, certain_segments, find_alignment

PAIRS = demo_pairs("train", 400)
FRENCH, ENGLISH = ([getattr(pair, side) for pair in PAIRS] for side in ("source", "target"))


def misaligned_line(shorter: list[str], longer: list[str]) -> int | None:
    """The first misaligned line, counted from 1, or None if the shorter file is just truncated."""
    segments = find_alignment(LineFeatures(shorter), LineFeatures(longer))
    first = next((segment.start for segment in segments if segment.shift), len(shorter))
    return first + 1 if first < len(shorter) else None


def without(lines: list[str], *lost: int) -> list[str]:
    return [line for i, line in enumerate(lines) if i not in lost]


def test_lengths_alone() -> None:
    lengths = [Random(i).randrange(5, 90) for i in range(200)]
    ours, theirs = ([letter * n for n in lengths] for letter in "-=")
    assert abs((misaligned_line(without(ours, 120), theirs) or 0) - 121) <= 2


def test_ends_alone() -> None:
    ends = [Random(i).choice(".?!:") for i in range(200)]
    ours, theirs = ([letter * 20 + end for end in ends] for letter in "-=")
    assert abs((misaligned_line(without(ours, 70), theirs) or 0) - 71) <= 5


def test_names_and_numbers_alone() -> None:
    names = [f"{Random(i).randrange(1000, 9999)}" for i in range(200)]
    ours, theirs = ([f"{letter * 20} {name}" for name in names] for letter in "-=")
    assert abs((misaligned_line(without(ours, 33), theirs) or 0) - 34) <= 2


@pytest.mark.parametrize("lost", [(10, 200, 350), (150, 151, 152), (0, 399), (390, 395, 398)])
def test_lines_are_lost_at_several_places(lost: tuple[int, ...]) -> None:
    assert abs((misaligned_line(without(ENGLISH, *lost), FRENCH) or 0) - (lost[0] + 1)) <= 2


def test_more_are_lost_than_places_are_looked_for() -> None:
    assert abs((misaligned_line(FRENCH[:100] + FRENCH[180:], ENGLISH) or 0) - 101) <= 2


@pytest.mark.parametrize("kept", [399, 380, 200, 0])
def test_a_file_that_ends_too_early(kept: int) -> None:
    assert misaligned_line(FRENCH[:kept], ENGLISH) is None


def test_blank_and_enormous_lines_do_no_harm() -> None:
    ours, theirs = list(FRENCH), list(ENGLISH)
    ours[20] = theirs[40] = ""
    theirs[60] = "x" * 100_000
    assert abs((misaligned_line(without(ours, 300), theirs) or 0) - 301) <= 3


@pytest.mark.parametrize("lost", [(), (0,), (150,), (10, 200, 350), (150, 151, 152), (390, 395, 398)])
def test_certain_pairs_are_right_and_almost_all(lost: tuple[int, ...]) -> None:
    numbers = [i for i in range(400) if i not in lost]
    segments = certain_segments(LineFeatures([FRENCH[i] for i in numbers]), LineFeatures([*ENGLISH, "The end."]))
    assert segments is not None
    pairs = [(numbers[i], i + segment.shift) for segment in segments for i in range(segment.start, segment.stop)]
    assert all(first == second for first, second in pairs) and len(pairs) >= 400 - 20 * max(1, len(lost))


def test_nothing_is_certain_about_files_that_are_not_parallel() -> None:
    others = [pair.target for pair in demo_pairs("test", 350)]
    assert certain_segments(LineFeatures(others), LineFeatures(FRENCH)) is None
    assert certain_segments(LineFeatures([]), LineFeatures(FRENCH)) is None
    assert certain_segments(LineFeatures(FRENCH[:2]), LineFeatures(ENGLISH[:3])) is None
