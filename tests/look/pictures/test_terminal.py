"""The alignment in the terminal: every weight in its cell, in its colour, within the width of the screen."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from regard.look.pictures.drawing.colours import colour_of
from regard.look.pictures.terminal import HeatMap

WEIGHTS = [[0.904, 0.091, 0.005], [0.25, 0.5, 0.25]]
SOURCE, TARGET = ["la", "[bold]", "</s>"], ["the", "漢字"]


def shown(width: int, *, colour: bool = False) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None)
    console.print(HeatMap(WEIGHTS, SOURCE, TARGET))
    return out.getvalue().splitlines()


def test_words_and_numbers() -> None:
    head, first, second = shown(60)
    assert head.split() == SOURCE  # no markup is read out of words
    assert first.split() == ["the", "0.90", "0.09", "·"] and second.split() == ["漢字", "0.25", "0.50", "0.25"]
    middles = [match.start() + len(match.group()) // 2 for match in re.finditer(r"0\.\d\d", first)]
    heads = [head.index(word) + len(word) // 2 for word in SOURCE[:2]]
    assert all(abs(a - b) <= 1 for a, b in zip(middles, heads, strict=True))


def test_cells_have_the_colour_of_their_weight() -> None:
    line = shown(60, colour=True)[1]
    red, green, blue = (int(colour_of(0.904)[i : i + 2], 16) for i in (1, 3, 5))
    assert f"48;2;{red};{green};{blue}" in line


def test_a_narrow_screen_gets_tenths_and_numbers() -> None:
    lines = shown(14)
    assert all(cell_len(line) <= 14 for line in lines)
    assert lines[0].split() == ["1", "2", "3"]
    assert lines[1].split() == ["the", "9", "1", "·"] and lines[2].split() == ["漢字", "3", "5", "3"]
    assert " ".join(lines[3:]).split() == ["1", "la", "2", "[bold]", "3", "</s>"]


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"weights has shape \(2, 3\), but 1 target and 3 source words need \(1, 3\)"):
        HeatMap(WEIGHTS, SOURCE, ["the"])
