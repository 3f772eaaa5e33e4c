"""Fonts for every script: what the machine has is found, what it lacks is named, and letters run the right way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from regard.look.pictures.drawing.figures import new_figure
from regard.look.pictures.drawing.fonts import families_for, fit_fonts, printable
from regard.look.pictures.matrices import alignment_plot


@pytest.fixture
def square_font(tmp_path: Path) -> Iterator[str]:
    """A font that has two Chinese letters, both wide bars, as if it were installed."""
    pen = TTGlyphPen(None)
    for point, draw in (
        ((0, 0), pen.moveTo),
        ((0, 800), pen.lineTo),
        ((2800, 800), pen.lineTo),
        ((2800, 0), pen.lineTo),
    ):
        draw(point)
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "cat", "dog"])
    builder.setupCharacterMap({ord("猫"): "cat", ord("犬"): "dog"})
    builder.setupGlyf(dict.fromkeys([".notdef", "cat", "dog"], square))
    builder.setupHorizontalMetrics(dict.fromkeys([".notdef", "cat", "dog"], (3000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "squares.ttf")
    before = list(fontManager.ttflist)
    fontManager.addfont(tmp_path / "squares.ttf")
    yield "Squares"
    fontManager.ttflist[:] = before


def test_the_usual_font_has_these() -> None:
    assert families_for(["le chat", "Привет", "γάτα", "חתול", "قطة", "▁the", "</s>"]) == (["DejaVu Sans"], set())


def test_a_font_of_the_machine_is_found_for_the_others(
    square_font: str, clipped: Callable[[Figure], list[str]]
) -> None:
    assert families_for(["猫 and 犬"]) == (["DejaVu Sans", square_font], set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = alignment_plot([[0.5, 0.5], [0.1, 0.9]], ["猫" * 12, "犬"], ["cat", "犬" * 9], made="猫")
        assert clipped(figure) == []  # drawn, without a word about missing letters
    assert figure.axes[0].get_xticklabels()[0].get_fontfamily() == ["DejaVu Sans", square_font]


def test_what_to_install_is_said_once() -> None:
    with pytest.warns(UserWarning, match="has the letters ひ犬猫: install Noto Sans CJK$") as seen:
        alignment_plot([[1.0]], ["猫犬"], ["ひ"])
    assert len(seen) == 1
    with pytest.warns(UserWarning, match="install Noto Sans Thai"):
        alignment_plot([[1.0]], ["แมว"], ["cat"])


def ink(text: str) -> np.ndarray:
    """How much ink there is in each column of a text, blank columns cut off."""
    figure = new_figure(3, 1, layout=None)
    figure.text(0.1, 0.4, text, fontsize=30)
    fit_fonts(figure)
    figure.canvas.draw()
    dark = 255 - np.asarray(figure.canvas.buffer_rgba())[..., 0].astype(int)  # type: ignore[attr-defined]
    columns = dark.sum(0)
    (inked,) = columns.nonzero()
    return columns[inked[0] : inked[-1] + 1]


def test_hebrew_runs_from_right_to_left() -> None:
    """The first letter of the word stands at its right end, and the last one at its left."""
    first, last, word = ink("ש"), ink("י"), ink("שי")
    assert len(first) > 1.5 * len(last)
    overlap = min(len(first) - 2, len(word))
    np.testing.assert_allclose(word[-overlap:], first[-overlap:], atol=0.15 * first.max())
    assert np.abs(word[:overlap] - first[:overlap]).max() > 0.3 * first.max()


def test_arabic_letters_join() -> None:
    joined, apart = ink("كتب"), sum(len(ink(letter)) for letter in "كتب")
    assert len(joined) < 0.8 * apart


def test_what_has_no_letter_has_a_sign() -> None:
    assert printable("a\nb\t\x06\x7f\u200b é猫") == "a↵b⇥<06><7F><200B> é猫"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = alignment_plot([[1.0]], ["\n"], ["\x06\t"])
        figure.canvas.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["<06>⇥"]
