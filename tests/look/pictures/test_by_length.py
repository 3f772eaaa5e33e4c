"""The two pictures of a comparison: the numbers on them are those that were given."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from regard.evaluation.bleu import Score
from regard.evaluation.by_length import Bucket
from regard.look.pictures.by_length import learning_plot, length_plot, short_count
from regard.look.pictures.drawing.figures import save


def bucket(low: int, high: int, bleu: float, *, width: float | None = 2.0, count: int = 250, merged: int = 1) -> Bucket:
    interval = None if width is None else (bleu - width, bleu + width)
    return Bucket(low, high, count, Score("BLEU", bleu, "nrefs:1|tok:13a", interval), Score("chrF2", 50, ""), merged)


CURVES = {
    "RNN encoder-decoder": [bucket(3, 6, 71), bucket(7, 10, 60, count=412), bucket(11, 24, 35, width=4, merged=3)],
    "+ Bahdanau": [bucket(3, 6, 82), bucket(7, 10, 83, count=412), bucket(11, 24, 79, width=3, merged=3)],
}


def test_length_plot_shows_the_scores(clipped, tmp_path) -> None:
    figure = length_plot(CURVES)
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == [text.get_text() for text in axes.get_legend().get_texts()]
    assert [line.get_label() for line in axes.lines] == list(CURVES)
    for line, band, expected, width in zip(
        axes.lines, axes.collections, ([71, 60, 35], [82, 83, 79]), ([2, 2, 4], [2, 2, 3]), strict=True
    ):
        x, y = line.get_data()
        assert list(x) == [4.5, 8.5, 17.5]
        assert list(y) == expected
        corners = {(float(a), float(b)) for a, b in band.get_paths()[0].vertices}
        for at, value, half in zip(x, y, width, strict=True):
            assert {(at, value - half), (at, value + half)} <= corners
    assert [label.get_text() for label in axes.get_xticklabels()] == ["3–6\n250", "7–10\n412", "11–24\n250"]
    assert axes.get_ylim()[0] == 0
    assert axes.lines[0].get_color() != axes.lines[1].get_color()
    assert clipped(figure) == []
    assert save(figure, tmp_path / "length.png").stat().st_size > 10_000


def test_length_plot_is_dashed_beyond_the_lengths_of_training() -> None:
    figure = length_plot(CURVES, trained={"+ Bahdanau": 10})
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(CURVES)
    whole, inside, beyond = axes.lines
    assert list(whole.get_xdata()) == [4.5, 8.5, 17.5] and whole.get_linestyle() == "-"
    assert list(inside.get_ydata()) == [82, 83] and inside.get_linestyle() == "-"
    assert list(beyond.get_ydata()) == [83, 79] and beyond.get_linestyle() == "--"
    assert beyond.get_color() == inside.get_color() != whole.get_color()
    assert "Dashed: longer than in training." in figure.get_supxlabel()
    assert "Dashed" not in length_plot(CURVES).get_supxlabel()


def test_length_plot_says_how_it_was_made() -> None:
    text = " ".join(length_plot(CURVES).get_supxlabel().split())
    assert "95%" in text and "nrefs:1|tok:13a" in text
    assert "Merged from smaller buckets with few sentences: 11–24." in text
    plain = length_plot({"one": [bucket(4, 4, 50, width=None)]})
    assert "95%" not in plain.get_supxlabel() and "Merged" not in plain.get_supxlabel()
    assert [label.get_text() for label in plain.axes[0].get_xticklabels()] == ["4\n250"]


def test_many_systems_and_buckets(clipped) -> None:
    """Five systems, as `regard compare` has, look different from each other; twenty buckets do not run together."""
    curves = {
        f"system {i}": [bucket(5 * k, 5 * k + 4, 90 - 3 * i - k, count=1000 + k) for k in range(20)] for i in range(5)
    }
    figure = length_plot(curves)
    (axes,) = figure.axes
    assert len({line.get_color() for line in axes.lines}) == len({line.get_marker() for line in axes.lines}) == 5
    for line, band in zip(axes.lines, axes.collections, strict=True):
        assert to_rgb(line.get_color()) == tuple(band.get_facecolor()[0][:3])
    assert clipped(figure) == []
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))


def test_learning_plot(clipped, tmp_path) -> None:
    curves = {
        "RNN": [(0, 0.0), (500_000, 20.5), (1_000_000, 41.0)],
        "Transformer": [(250_000, 60.0), (1_000_000, 95.0)],
    }
    figure = learning_plot(curves)
    (axes,) = figure.axes
    for line, (name, curve) in zip(axes.lines, curves.items(), strict=True):
        assert line.get_label() == name
        np.testing.assert_array_equal(np.column_stack(line.get_data()), curve)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("target tokens seen", "BLEU")
    assert clipped(figure) == []
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert "1M" in shown
    save(figure, tmp_path / "learning.svg")
    assert learning_plot(curves, measure="loss").axes[0].get_ylabel() == "loss"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (800, "800"), (1000, "1k"), (250_000, "250k"), (1_500_000, "1.5M"), (2e9, "2G")]
)
def test_short_count(value: float, text: str) -> None:
    assert short_count(value) == text


def test_errors() -> None:
    with pytest.raises(ValueError, match="'b' and 'a' have different buckets: score both on the same sentences"):
        length_plot({"a": [bucket(1, 2, 50)], "b": [bucket(1, 3, 50)]})
    for empty in ({}, {"a": []}):
        with pytest.raises(ValueError, match="at least one bucket"):
            length_plot(empty)
        with pytest.raises(ValueError, match="at least one"):
            learning_plot(empty)


def test_the_legend_hides_no_line() -> None:
    """It stands beside the axes, wherever the lines run."""
    for figure in (length_plot(CURVES), learning_plot({"a": [(1, 90.0), (9, 95.0)], "b": [(1, 5.0), (9, 1.0)]})):
        figure.canvas.draw()
        (axes,) = figure.axes
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())
