"""Networks for series and images: what instance normalisation promises, the patches, and the convolutional stem."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard import CaptionerConfig, DLinear, PatchForecaster, TransformerCaptioner, VisionTransformer
from regard.models.config import ForecasterConfig, ImageClassifierConfig, LinearForecasterConfig
from regard.settings import SettingError

SIZES = {"lookback": 24, "horizon": 6, "patch": 8, "stride": 4, "layers": 1, "dim": 16, "heads": 2, "hidden": 16}


@pytest.mark.parametrize("instance_norm", [True, False])
def test_level_and_unit_of_a_window_do_not_matter_with_instance_norm(instance_norm: bool) -> None:
    torch.manual_seed(1)
    model = PatchForecaster(ForecasterConfig(**SIZES, instance_norm=instance_norm)).double().eval()
    series = torch.randn(3, 2, 24, dtype=torch.float64)
    units = torch.tensor([10.0, 0.3], dtype=torch.float64)[:, None]  # of each column
    levels = torch.tensor([5.0, -70.0], dtype=torch.float64)[:, None]
    expected = model(series) * units + levels
    assert torch.allclose(model(series * units + levels), expected, rtol=1e-3, atol=1e-3) is instance_norm


def test_columns_are_forecast_alone() -> None:
    model = PatchForecaster(ForecasterConfig(**SIZES)).eval()
    series = torch.randn(2, 3, 24)
    torch.testing.assert_close(model(series)[:, 1:2], model(series[:, 1:2]))


def test_a_model_with_a_shortcut_begins_as_a_linear_forecast_of_the_standardised_window() -> None:
    torch.manual_seed(1)
    model = PatchForecaster(ForecasterConfig(**SIZES, shortcut=True)).double()
    series = torch.randn(3, 2, 24, dtype=torch.float64) * 4 + 9
    mean, deviation = series.mean(-1, keepdim=True), (series.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    linear = ((series - mean) / deviation) @ model.shortcut.weight.T + model.shortcut.bias
    torch.testing.assert_close(model.eval()(series), linear * deviation + mean)
    assert {"shortcut", "instance-norm"} < model.traits
    with pytest.raises(SettingError, match="shortcut = true"):
        ForecasterConfig(**SIZES, shortcut_dropout=0.5)


@pytest.mark.parametrize("instance_norm", [True, False])
def test_the_shortcut_is_fitted_as_if_inputs_were_dropped(instance_norm: bool) -> None:
    """Least squares over many random masks, by torch.linalg.lstsq, comes close to the formula for the expectation."""
    torch.manual_seed(1)
    d, config = 0.4, ForecasterConfig(**SIZES, shortcut=True, shortcut_dropout=0.4, instance_norm=instance_norm)
    model = PatchForecaster(config)
    past, future = (3 + torch.randn(40, 2, points).cumsum(-1) for points in (24, 6))
    model.fit_shortcut([(past[:15], future[:15]), (past[15:], future[15:])])
    level = past.mean(-1, keepdim=True) if instance_norm else 0
    X, Y = ((points - level).flatten(0, 1).double() for points in (past, future))
    masks = torch.rand(2_000, *X.shape) >= d
    dropped = (masks * X / (1 - d)).flatten(0, 1)
    expected = torch.linalg.lstsq(dropped, Y.repeat(2_000, 1)).solution.T
    torch.testing.assert_close(model.shortcut.weight.double(), expected, atol=0.03, rtol=0)
    assert (model.shortcut.weight - torch.linalg.lstsq(X, Y).solution.T).abs().max() > 0.1  # without dropout
    assert not model.shortcut.bias.any() and not model.shortcut.weight.requires_grad


def test_patches_overlap_and_the_last_point_is_repeated() -> None:
    config = ForecasterConfig(**SIZES)
    patches = PatchForecaster(config).cut(torch.arange(24.0).view(1, 1, 24))[0, 0]
    assert len(patches) == config.patches == 6
    assert patches[1].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert patches[-1].tolist() == [20, 21, 22, 23, 23, 23, 23, 23]


def test_trend_of_dlinear_is_the_moving_average() -> None:
    model = DLinear(LinearForecasterConfig(lookback=6, horizon=2, window=3))
    trend = model.moving_average(torch.tensor([[[0.0, 3, 6, 3, 0, 3]]]))
    torch.testing.assert_close(trend, torch.tensor([[[1.0, 3, 4, 3, 2, 2]]]))
    linear = sum(parameter.numel() for parameter in model.parameters())
    assert linear == 2 * (6 * 2 + 2)


@pytest.mark.parametrize("stem", ["convolutions", "pooled-convolutions"])
def test_vectors_of_the_stem_move_with_the_picture_and_are_row_by_row(stem: str) -> None:
    sizes: dict[str, Any] = {"channels": 1, "height": 16, "width": 80, "layers": 1, "dim": 16, "heads": 2, "hidden": 16}
    sizes["vocabulary"] = 7
    model = VisionTransformer(ImageClassifierConfig(**sizes, patch=4, stem=stem)).eval()
    pictures = torch.zeros(2, 1, 16, 80)
    pictures[0, 0, 5:7, 37:40] = 1.0
    pictures[1] = pictures[0].roll(4, dims=-1)  # by one patch
    first, second = model.patches(pictures).view(2, 4, 20, 16)
    torch.testing.assert_close(first[:, 5:14], second[:, 6:15])  # the borders differ
    assert not torch.allclose(first[:, 5:14], second[:, 5:14], atol=0.01)
    assert model(pictures).shape == (2, 3)
    with pytest.raises(SettingError, match="must be 2, 4, 8"):
        ImageClassifierConfig(**{**sizes, "height": 15, "width": 15}, patch=3, stem="convolutions")


def test_a_captioners_stem_reads_each_frame_alone() -> None:
    sizes: dict[str, int] = {"channels": 1, "height": 8, "width": 12, "layers": 1, "dim": 16, "heads": 2, "hidden": 16}
    config = CaptionerConfig(**sizes, frames=2, patch=4, stem="convolutions", target_vocabulary=9)
    model = TransformerCaptioner(config).eval()
    frames = torch.rand(3, 2, 1, 8, 12)
    cells = model.cells(frames)
    assert cells.shape == (3, 2, 2, 3, 16) and model.encode(frames).states.shape == (3, 12, 16)
    for t in range(2):
        alone = model.patches(2 * frames[:, t] - 1).view(3, 2, 3, 16)
        torch.testing.assert_close(cells[:, t], alone)
