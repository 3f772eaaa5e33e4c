"""G6: speech recognition and forecasting, each as small as can be.

B recordings   T frames   M bands   n vectors   m tokens
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.arrays.speech.mel import LogMel
from regard.text.tokenizers.special_tokens import END, SPECIAL_TOKENS, START

RATE, SECONDS = 8000, 0.12  # of a sound
PITCHES = torch.tensor([300.0, 900.0, 2500.0])
LAG, AHEAD = 24, 6  # points of a series that are read, and forecast


def train(model: nn.Module, loss_of: Callable[[], Tensor], *, steps: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()
    model.eval()


def sounds(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Recordings of three noisy sounds in a row, as frames (B, T, M), and which sounds they are (B, 3)."""
    dice = torch.Generator().manual_seed(seed)
    which = torch.randint(len(PITCHES), (count, 3), generator=dice)
    moments = torch.arange(int(SECONDS * RATE)) / RATE
    parts = torch.sin(2 * math.pi * PITCHES[which][..., None] * moments)  # (B, 3, samples of one)
    samples = parts.flatten(1)
    return LogMel(rate=RATE, bands=8)(samples + 0.05 * torch.randn(samples.shape, generator=dice)), which


def test_G6_speech_is_written_down_by_attention_over_time() -> None:
    torch.manual_seed(0)
    model = regard.SpeechTransformer(
        regard.SpeechRecognizerConfig(
            vocabulary=len(SPECIAL_TOKENS) + len(PITCHES),
            rate=RATE,
            mels=8,
            layers=1,
            dim=32,
            heads=2,
            hidden=32,
            dropout=0.0,
        )
    )
    frames, which = sounds(48, seed=0)
    text = which + len(SPECIAL_TOKENS)
    target = F.pad(F.pad(text, (1, 0), value=START), (0, 1), value=END)  # (B, 5)

    def loss() -> Tensor:
        return F.cross_entropy(model(frames, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())

    train(model, loss, steps=120)
    new, answers = sounds(64, seed=1)
    with torch.no_grad(), regard.record(model) as maps:
        state, written = model.start(model.encode(new), 4), [torch.full((64, 1), START)]
        for _ in range(3):
            written.append(model.project(model.decode(written[-1], state=state)).argmax(-1))
    assert (torch.cat(written[1:], dim=1) == answers + len(SPECIAL_TOKENS)).all(1).float().mean() > 0.9
    weights = maps["decoder.0.cross"]  # (B, heads, m, n): for each token, a distribution over time
    assert weights.shape == (64, 2, 3, math.ceil(new.shape[1] / 4))
    heard = weights.mean(1).argmax(-1) * 0.04  # seconds (B, m)
    starts = torch.arange(3) * SECONDS
    assert ((heard > starts - 0.05) & (heard < starts + SECONDS + 0.05)).float().mean() > 0.9  # where it sounds


def test_G6_a_series_is_continued_from_patches_of_its_past() -> None:
    torch.manual_seed(0)
    model = regard.PatchForecaster(
        regard.ForecasterConfig(
            lookback=LAG, horizon=AHEAD, patch=6, stride=6, layers=1, dim=16, heads=2, hidden=32, dropout=0.0
        )
    )

    def waves(seed: int) -> Tensor:
        dice = torch.Generator().manual_seed(seed)
        phase, height = torch.rand(2, 64, 1, generator=dice)
        return (1 + height) * torch.sin(2 * math.pi * (torch.arange(LAG + AHEAD) / 8 + phase))  # (B, LAG + AHEAD)

    def error(series: Tensor) -> Tensor:
        return F.mse_loss(model(series[:, None, :LAG])[:, 0], series[:, LAG:])

    train(model, lambda: error(waves(0)), steps=120)
    new = waves(1)
    with torch.no_grad(), regard.record(model) as maps:
        assert error(new) < 0.1 * F.mse_loss(new[:, LAG - 1 : LAG].expand(-1, AHEAD), new[:, LAG:])  # the last value
    patches = LAG // 6 + 1  # the last point is repeated for one more
    assert maps["encoder.0.self"].shape == (64, 2, patches, patches)
