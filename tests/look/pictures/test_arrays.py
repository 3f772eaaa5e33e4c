"""Pictures of images, series and speech: the right weights at the right patches, points and moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.look.pictures.arrays.image_attention import image_attention_plot
from regard.look.pictures.arrays.series_forecast import forecast_plot, point_weights
from regard.look.pictures.arrays.speech_attention import speech_attention_plot


@pytest.mark.parametrize("channels", [1, 3])
def test_weights_cover_their_patches(channels: int) -> None:
    pixels = np.zeros((channels, 8, 12), np.uint8)
    weights = torch.rand(2, 2, 3)
    figure = image_attention_plot(pixels, weights, ["layer 0", "layer 1"], title="cat", about="how")
    _, first, second, _bar = figure.axes
    for axes, grid in zip((first, second), weights, strict=True):
        shades = axes.images[-1]
        assert np.array_equal(shades.get_array(), grid.numpy())
        assert (
            tuple(shades.get_extent()) == tuple(axes.images[0].get_extent()) == (-0.5, 11.5, 7.5, -0.5)
        )  # row 0 is at the top
        assert shades.get_clim() == (0, float(weights.max()))  # one scale for all panels
    assert [axes.get_title() for axes in (first, second)] == ["layer 0", "layer 1"]


def test_many_panels_go_on_in_the_next_row() -> None:
    figure = image_attention_plot(np.zeros((1, 4, 4), np.uint8), torch.rand(7, 2, 2), [str(i) for i in range(7)])
    panels = [axes for axes in figure.axes if len(axes.images) == 2]
    assert [axes.get_title() for axes in panels] == [str(i) for i in range(7)]
    assert panels[0].get_position().y0 > panels[6].get_position().y0


@pytest.mark.parametrize(
    ("pixels", "weights", "names", "message"),
    [
        (np.zeros((8, 8), np.uint8), torch.rand(1, 2, 2), ["a"], r"pixels must be \(channels, height, width\)"),
        (np.zeros((1, 8, 8), np.uint8), torch.rand(2, 2), ["a"], r"weights must be \(maps, rows, columns\)"),
        (np.zeros((1, 8, 8), np.uint8), torch.rand(2, 2, 2), ["a"], "1 names for 2 maps"),
    ],
)
def test_wrong_shapes(pixels: np.ndarray, weights: torch.Tensor, names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        image_attention_plot(pixels, weights, names)


def test_point_gets_the_mean_of_its_patches() -> None:
    weights = torch.tensor([[0.1, 0.5, 0.4]])  # patches of points 0-3, 2-5 and 4-7, of which 6 and 7 are padding
    expected = torch.tensor([[0.1, 0.1, 0.3, 0.3, 0.45, 0.45]])
    torch.testing.assert_close(point_weights(weights, points=6, patch=4, stride=2), expected)


def test_lines_of_a_forecast() -> None:
    history, forecast = np.arange(12.0).reshape(6, 2), np.array([[12.0, 13], [14, 15], [16, 17]])
    truth, weights = forecast[:2] + 1, torch.rand(2, 6)
    figure = forecast_plot(history, forecast, ["load", "heat"], truth=truth, weights=weights, title="next")
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_ylabel() for axes in panels] == ["load", "heat"]
    for i, axes in enumerate(panels):
        lines = {line.get_label(): line for line in axes.lines}
        assert lines["history"].get_xdata().tolist() == [-6, -5, -4, -3, -2, -1]
        assert lines["history"].get_ydata().tolist() == history[:, i].tolist()
        assert lines["forecast"].get_xdata().tolist() == [0, 1, 2]
        assert lines["forecast"].get_ydata().tolist() == forecast[:, i].tolist()
        assert lines["truth"].get_ydata().tolist() == truth[:, i].tolist()
    areas = [axes for axes in figure.axes if axes.collections]
    assert len(areas) == 2 and all(axes.get_ylim()[0] == 0 for axes in areas)


def test_columns_must_agree() -> None:
    with pytest.raises(ValueError, match="the same columns, got 2, 1 and 2"):
        forecast_plot(np.zeros((4, 2)), np.zeros((2, 1)), ["a", "b"])
    with pytest.raises(ValueError, match=r"weights must be \(2, 4\)"):
        forecast_plot(np.zeros((4, 2)), np.zeros((2, 2)), ["a", "b"], weights=torch.rand(2, 3))


def test_weights_over_time_lie_below_their_sound() -> None:
    frames, weights = torch.randn(101, 40), torch.rand(3, 26)  # a second, and a moment every 0.04 s
    figure = speech_attention_plot(frames, weights, ["one", "two", "end"], seconds=1.0, step=0.04, title="one two")
    above, below, _bar = figure.axes
    assert np.array_equal(above.images[0].get_array(), frames.T.numpy()) and above.images[0].origin == "lower"
    assert above.get_xlim() == below.get_xlim() == (0, 1)
    left, right, *_ = below.images[0].get_extent()
    middles = np.linspace(left, right, 2 * 26 + 1)[1::2]
    assert middles == pytest.approx(0.04 * np.arange(26))  # a moment is drawn around its time
    assert [label.get_text() for label in below.get_yticklabels()] == ["one", "two", "end"]
    for wrong, message in (
        ((frames[0], weights, ["a"]), "frames must be"),
        ((frames, weights[0], ["a"]), "weights must be"),
        ((frames, weights, ["a"]), "1 tokens for 3 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            speech_attention_plot(*wrong, seconds=1.0, step=0.04)
