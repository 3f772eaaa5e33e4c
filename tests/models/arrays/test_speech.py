"""Speech recognizers: padding and neighbours change nothing, frames become fewer, and decoding step by step agrees."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import regard
from regard.arrays.speech.mel import PADDING, pad_frames
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.models.arrays.speech_input import scale_frames
from regard.settings import SettingError

SOUND: dict[str, Any] = {"rate": 8000, "mels": 6, "dropout": 0.0}
STACK: dict[str, Any] = {**SOUND, "vocabulary": 9, "layers": 1, "dim": 16, "heads": 2, "hidden": 16}
CONFIGS: dict[str, Any] = {
    "convolution": regard.SpeechRecognizerConfig(**STACK, local_layers=2),
    "stacking": regard.SpeechRecognizerConfig(**STACK, front_end="stacking", subsampling=3, ctc=0.3, tie_output=False),
    "pyramid": regard.ListenAttendSpellConfig(
        **SOUND, target_vocabulary=9, hidden=12, embedding=8, layers=2, subsampling=4
    ),
    "ctc": regard.SpeechCTCConfig(**STACK, subsampling=1),
}


def model_of(name: str) -> Any:
    torch.manual_seed(1)
    return regard.make_model(CONFIGS[name]).eval()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_recording_is_encoded_the_same_alone_and_beside_a_longer_one(name: str) -> None:
    model = model_of(name)
    recordings = [torch.randn(length, 6) for length in (13, 21, 8)]
    together = model.encode(model.pad_sources(recordings))
    factor = model.config.subsampling
    assert together.keep.sum(1).tolist() == [-(-len(frames) // factor) for frames in recordings]
    for row, frames in enumerate(recordings):
        alone = model.encode(frames[None])
        assert alone.keep.all()
        torch.testing.assert_close(together.states[row][together.keep[row]], alone.states[0], atol=1e-5, rtol=1e-4)
        if alone.final is not None:
            torch.testing.assert_close(together.final[0][:, row], alone.final[0][:, 0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["convolution", "pyramid"])
def test_searches_read_frames(name: str) -> None:
    model = model_of(name)
    recordings: Any = [torch.randn(length, 6) for length in (13, 21)]
    for search in (regard.Greedy(), Beam(3)):
        cached = generate_tokens(model, recordings, search=search, max_tokens=6)
        recomputed = generate_tokens(model, recordings, search=search, max_tokens=6, cached=False)
        assert [best.tokens for best, *_ in cached] == [best.tokens for best, *_ in recomputed]
        alone = [generate_tokens(model, [frames], search=search, max_tokens=6)[0][0] for frames in recordings]
        assert [best.score for best, *_ in cached] == pytest.approx([best.score for best in alone], abs=1e-4)


def test_frames_are_scaled_by_the_loudest_cell_or_by_band() -> None:
    frames = pad_frames([-5 + 3 * torch.randn(50, 6), torch.full((20, 6), -7.0)])
    louder = torch.where(frames == PADDING, frames, frames + 2.5)  # a gain is added to logarithms
    for name in ("loudest", "bands"):
        config = regard.SpeechCTCConfig(**STACK, scaling=name)
        scaled, keep = scale_frames(frames, config)
        assert keep.sum(1).tolist() == [50, 20] and (scaled[~keep] == 0).all()
        torch.testing.assert_close(scale_frames(louder, config)[0], scaled, atol=1e-4, rtol=0)
        if name == "bands":
            torch.testing.assert_close(scaled[0].mean(0), torch.zeros(6), atol=1e-5, rtol=0)
            torch.testing.assert_close(scaled[0].var(0, correction=0), torch.ones(6), atol=1e-4, rtol=0)
            assert (scaled[1, :20] == 0).all()  # silence
        else:
            quieter = 10 * (frames[0, :50].max() - frames[0, 3, 2]) / math.log(10)  # decibels, a range of 80
            assert float(scaled[0, 3, 2]) == pytest.approx(1 - float(quieter) / 40, abs=1e-5)
            assert scaled.max() == 1
    with pytest.raises(ValueError, match=r"frames must be \(B, T, 6\)"):
        scale_frames(frames[..., :5], config)


def test_settings_that_do_not_fit() -> None:
    for make, changes, message in (
        (regard.SpeechRecognizerConfig, {**STACK, "subsampling": 6}, "power of 2"),
        (regard.SpeechCTCConfig, {**STACK, "scale_embedding": True}, "scale_embedding"),
        (regard.ListenAttendSpellConfig, {**SOUND, "target_vocabulary": 9, "attention": "none"}, "attention"),
        (regard.ListenAttendSpellConfig, {**SOUND, "target_vocabulary": 9, "subsampling": 3}, "power of 2"),
    ):
        with pytest.raises(SettingError, match=message):
            make(**changes)
