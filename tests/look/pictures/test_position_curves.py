"""The curves of the position encodings, against sums of cosines written out here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.look.pictures.position_curves import position_products_plot, position_variance_plot


def products(dim: int, distances: int) -> np.ndarray:
    """(distance, i): the terms of B3, cos(distance / 10000^(2i/d))."""
    return np.array([[math.cos(t / 10000 ** (2 * i / dim)) for i in range(dim // 2)] for t in range(distances)])


def test_variance_is_the_share_of_the_first_k(clipped) -> None:
    figure = position_variance_plot(dim=64, distances=20)
    k, share = figure.axes[0].lines[0].get_data()
    expected = products(64, 20).cumsum(axis=1).var(axis=0)
    assert list(k) == list(range(2, 65, 2))
    np.testing.assert_allclose(share, expected / expected[-1], atol=1e-9)
    assert clipped(figure) == []


def test_variance_marks_the_lectures_numbers() -> None:
    axes = position_variance_plot().axes[0]
    assert [text.get_text() for text in axes.texts] == ["k = 50: 80.9%", "k = 62: 96.1%"]
    k, share = axes.lines[0].get_data()
    for mark, (at, least) in zip(axes.lines[1:], ((50, 0.80), (62, 0.95)), strict=True):
        (x,), (y,) = mark.get_data()
        assert x == at and y == share[list(k).index(at)] >= least > share[list(k).index(at - 2)]


def test_products_from_any_start_lie_on_one_curve(clipped) -> None:
    figure = position_products_plot(dim=32, distances=40)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == ["t = 0", "t = 50", "t = 200"]
    for line in axes.lines:
        distance, product = line.get_data()
        assert list(distance) == list(range(40))
        np.testing.assert_allclose(product, products(32, 40).sum(axis=1), atol=1e-9)
    assert "distance" in axes.get_xlabel()
    assert clipped(figure) == []


def test_errors() -> None:
    with pytest.raises(ValueError, match="dim must be even, not 7"):
        position_variance_plot(dim=7)
    with pytest.raises(ValueError, match="distances must be at least 2, not 1"):
        position_products_plot(distances=1)
