"""From log-mel frames to fewer, wider vectors, for an encoder that reads speech.

Dong et al. 2018 (convolutions); G6. Neighbouring frames differ little, so several of them become one vector.

    B recordings   T frames   M bands   n vectors   p model width
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.arrays.speech.mel import PADDING, RANGE, LogMel
from regard.models.config.speech import SoundConfig, SpeechStackConfig
from regard.models.stack import make_vector_position, residual_dtype

KERNEL = 5  # vectors that a local layer sees
EPSILON = 1e-5  # added to the variance of a band, which is 0 in silence


def make_log_mel(config: SoundConfig) -> LogMel:
    """Make what computes the frames that a model of these settings reads."""
    return LogMel(rate=config.rate, bands=config.mels)


def scale_frames(frames: Tensor, config: SoundConfig) -> tuple[Tensor, Tensor]:
    """Frames (B, T, M) -> numbers near 0 that do not depend on how loud a recording is, and which are real (B, T).

    Scaling "loudest" maps the loudest cell of a recording to 1 and what is 80 dB quieter to -1. Scaling "bands" gives
    each band mean 0 and variance 1 over the recording: that takes away the sound of a microphone, but in a short
    recording also what distinguishes one steady sound from another. Frames of padding become 0.
    """
    if frames.dim() != 3 or frames.shape[-1] != config.mels:
        raise ValueError(f"frames must be (B, T, {config.mels}), got {tuple(frames.shape)}")
    keep = frames[..., 0] != PADDING  # (B, T)
    real = keep[..., None]
    if config.scaling == "loudest":
        loudest = frames.amax((1, 2), keepdim=True)  # padding is -inf
        return torch.where(real, 1 + 2 * (frames - loudest) / RANGE, 0.0), keep
    count = keep.sum(1)[:, None, None].clamp(min=1)
    mean = torch.where(real, frames, 0.0).sum(1, keepdim=True) / count
    centred = torch.where(real, frames - mean, 0.0)
    return centred / (centred.square().sum(1, keepdim=True) / count + EPSILON).sqrt(), keep


class LocalLayer(nn.Module):
    """A residual convolution over neighbouring vectors: x + dropout(gelu(convolve(norm(x)))).

    It recognizes sounds where they are, as the convolutions of Gulati et al. 2020 do, before attention relates them.
    """

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
        self.dropout = nn.Dropout(dropout)

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"LocalLayer"})

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """x (B, n, p), of which keep (B, n) are real -> (B, n, p)."""
        near = (self.norm(x) * keep[..., None]).transpose(1, 2)  # (B, p, n)
        return x + self.dropout(F.gelu(self.convolution(near)).transpose(1, 2))


class SpeechInput(nn.Module):
    """The input of the first block: frames, `subsampling` of which become one vector, with positions and dropout."""

    def __init__(self, config: SpeechStackConfig) -> None:
        super().__init__()
        self.config = config
        width = config.dim - (config.position_width or 0)
        self.stacking = nn.Linear(config.mels * config.subsampling, width) if self.stacks else None
        channels = [] if self.stacks else [config.mels, *[width] * max(1, config.halvings)]
        stride = 1 if config.subsampling == 1 else 2
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, 3, stride, padding=1) for a, b in pairwise(channels))
        self.local = nn.ModuleList(LocalLayer(width, config.dropout) for _ in range(config.local_layers))
        self.position = make_vector_position(config)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def stacks(self) -> bool:
        """Whether neighbouring frames are stacked, and not convolved."""
        return self.config.front_end == "stacking"

    @property
    def traits(self) -> frozenset[str]:
        """The front end; see regard.traits."""
        return frozenset({f"SpeechInput {self.config.front_end}"})

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """frames (B, T, M) -> vectors (B, n, p), and which of them are real (B, n)."""
        x, keep = scale_frames(frames, self.config)
        x = x.to(next(self.parameters()).dtype)
        x, keep = self._stack(x, keep) if self.stacking is not None else self._convolve(x, keep)
        for layer in self.local:
            x = layer(x, keep)
        if self.position is not None:
            x = self.position.embed(x, torch.arange(x.shape[1], device=x.device))
        return self.dropout(x.to(residual_dtype(x))), keep

    def _stack(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        assert self.stacking is not None
        s = self.config.subsampling
        x = F.pad(x, (0, 0, 0, -x.shape[1] % s))  # (B, n · s, M)
        return self.stacking(x.unflatten(1, (-1, s)).flatten(2)), keep[:, ::s]

    def _convolve(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """Each convolution sees a frame and its neighbours, and leaves out every second result."""
        x = x.transpose(1, 2)  # (B, M, T)
        for convolution in self.convolutions:
            x = F.gelu(convolution(x * keep[:, None]))
            keep = keep[:, :: 1 if self.config.subsampling == 1 else 2]
        return x.transpose(1, 2), keep
