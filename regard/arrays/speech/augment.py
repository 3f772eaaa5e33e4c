"""Changes of recordings in training, so that a model hears more than there is.

Recordings are joined, played faster or slower, made louder or quieter, and noise is added (Ko et al. 2015); bands
and moments of the frames are masked (SpecAugment; Park et al. 2019). Samples grow from epoch to epoch (Bengio et al.
2009). What is drawn for a sample depends on its number and the stream (seed, epoch), not on its batch.

    N samples   B samples of a batch   J recordings of a sample at most   S samples of sound   T frames   M bands
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.arrays.speech.mel import PADDING
from regard.text.random_streams import random_fractions, random_keys

# Random streams, after those of images.
COUNTS, OTHERS, GAPS, SPEEDS, GAINS, NOISY, LOUDNESS, OFFSETS, MASKS = range(20, 29)
MAX_GAP = 0.3  # seconds of silence between two recordings
LEAST_NOISE, MOST_NOISE = 40.0, 5.0  # decibels by which noise is quieter than the recording
NOISE_SAMPLES = 2**17  # of each colour
MASKED_BANDS, MASKED_SECONDS = 0.2, 0.1  # the widest mask: a share of the bands, and a length


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How training changes recordings; by default not at all."""

    joined: int = 1  # recordings of a sample, at most
    growth: int = 0  # epochs after which one more is joined; 0: as many as that from the start
    speed: float = 0.0  # the largest change, as a share
    gain: float = 0.0  # the largest change, in decibels
    noise: float = 0.0  # the share of samples with noise
    masks: int = 0  # masks over time, and as many over bands

    def at(self, epoch: int) -> Augmentation:
        """Return the changes of an epoch: samples begin short and grow, as in curriculum learning.

        A decoder learns from short samples where to listen, which long ones hardly teach it.
        """
        return replace(self, joined=min(self.joined, 1 + epoch // self.growth)) if self.growth else self


class Strings(NamedTuple):
    """The samples of an epoch, as recordings in a row; unused columns have length 0."""

    parts: NDArray[np.int64]  # (N, J) numbers of recordings
    counts: NDArray[np.int64]  # (N,) used columns
    speeds: NDArray[np.float32]  # (N, J)
    gains: NDArray[np.float32]  # (N, J)
    starts: NDArray[np.int64]  # (N, J) the first sample of sound of each recording
    lengths: NDArray[np.int64]  # (N, J) samples of sound
    total: NDArray[np.int64]  # (N,) samples of sound


def draw_strings(
    sizes: NDArray[np.int64], rate: int, how: Augmentation, stream: tuple[int, int], among: NDArray[np.int64]
) -> Strings:
    """Draw the recordings of each sample, by the sizes (N,) of all; the first one of a sample has its own number.

    The others are drawn from `among`. In an epoch, about as many samples have each count from 1 to `joined`.
    """
    count, most = len(sizes), how.joined
    shape = (count, most)
    counts = 1 + (random_fractions(count, *stream, COUNTS) * most).astype(np.int64)
    others = (random_fractions(count * most, *stream, OTHERS) * len(among)).astype(np.int64).reshape(shape)
    parts = among[others]
    parts[:, 0] = np.arange(count)
    used = np.arange(most) < counts[:, None]

    def draw(purpose: int) -> NDArray[np.float64]:
        """Return numbers from -1 to 1."""
        return 2 * random_fractions(count * most, *stream, purpose).reshape(shape) - 1

    speeds = (1 + how.speed * draw(SPEEDS)).astype(np.float32)
    lengths = np.where(used, np.maximum(1, (sizes[parts] / speeds).astype(np.int64)), 0)
    gaps = np.where(used, ((draw(GAPS) + 1) / 2 * MAX_GAP * rate).astype(np.int64), 0)
    gaps[:, 0] = 0
    ends = np.cumsum(lengths + gaps, axis=1)
    return Strings(
        parts,
        counts,
        speeds,
        (10 ** (how.gain * draw(GAINS) / 20)).astype(np.float32),
        ends - lengths,
        lengths,
        ends[:, -1],
    )


def play(flat: Tensor, first: NDArray[np.int64], strings: Strings, ids: NDArray[np.int64]) -> Tensor:
    """Return the sound of some samples (B, S), from all recordings in one tensor; `first` is where each begins."""
    device = flat.device
    parts = strings.parts[ids]

    def on_device(numbers: NDArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(device, non_blocking=True)

    starts, lengths = on_device(strings.starts[ids]), on_device(strings.lengths[ids])  # (B, J)
    begins, speeds, gains = on_device(first[parts]), on_device(strings.speeds[ids]), on_device(strings.gains[ids])
    moments = torch.arange(int(strings.total[ids].max()), device=device).expand(len(ids), -1).contiguous()  # (B, S)
    part = (torch.searchsorted(starts, moments, right=True) - 1).clamp(min=0)  # the recording that plays, or played
    since = moments - starts.gather(1, part)
    length = lengths.gather(1, part)
    position = since * speeds.gather(1, part)  # in the recording, between two of its samples
    before = position.long()
    sample = begins.gather(1, part) + before
    last = len(flat) - 1
    values = torch.lerp(flat[sample.clamp(max=last)], flat[(sample + 1).clamp(max=last)], position - before)
    return torch.where(since < length, values * gains.gather(1, part), 0.0)


def add_noise(
    sound: Tensor, lengths: Tensor, ids: NDArray[np.int64], total: int, share: float, stream: tuple[int, int]
) -> Tensor:
    """Add white or pink noise to a share of the samples (B, S) with these lengths (B,)."""

    def draw(purpose: int) -> Tensor:
        return torch.from_numpy(random_fractions(total, *stream, purpose)[ids].astype(np.float32)).to(sound.device)

    noise = _noise(sound.device)
    quieter = LEAST_NOISE + (MOST_NOISE - LEAST_NOISE) * draw(LOUDNESS)
    power = sound.square().sum(1) / lengths  # (B,)
    amplitude = torch.where(draw(NOISY) < share, power.sqrt() * 10 ** (-quieter / 20), 0.0)
    first = torch.from_numpy((random_keys(total, *stream, OFFSETS)[ids] % np.uint64(len(noise))).astype(np.int64))
    moments = torch.arange(sound.shape[1], device=sound.device)
    offsets = (first.to(sound.device)[:, None] + moments) % len(noise)
    inside = moments < lengths[:, None]
    return sound + torch.where(inside, amplitude[:, None] * noise[offsets], 0.0)


@cache
def _noise(device: torch.device) -> Tensor:
    """Return white noise and, after it, pink noise, whose power falls with the frequency; both of power 1."""
    white = np.random.Generator(np.random.PCG64(1)).standard_normal(NOISE_SAMPLES)
    spectrum = np.fft.rfft(white)
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))))
    colours = np.concatenate([white, pink / pink.std()])
    return torch.from_numpy(colours.astype(np.float32)).to(device)


def mask_frames(
    frames: Tensor, ids: NDArray[np.int64], total: int, masks: int, widest: int, stream: tuple[int, int]
) -> Tensor:
    """Replace some bands, and some moments of at most `widest` frames, by the mean of a sample's frames (B, T, M)."""
    _, length, bands = frames.shape
    drawn = random_fractions(total * masks * 4, *stream, MASKS).reshape(total, masks, 4)[ids]
    draws = torch.from_numpy(drawn.astype(np.float32)).to(frames.device)[..., None]  # (B, masks, 4, 1)
    keep = frames[..., 0] != PADDING  # (B, T)
    count = keep.sum(1)[:, None, None]  # (B, 1, 1)
    mean = frames.masked_fill(~keep[..., None], 0.0).sum((1, 2)) / (count[:, 0, 0] * bands)

    def hidden(width: Tensor, where: Tensor, size: Tensor | int, cells: int) -> Tensor:
        """Return which cells (B, cells) lie in a mask."""
        first = where * (size - width)
        cell = torch.arange(cells, device=frames.device)
        return ((cell >= first) & (cell < first + width)).any(1)

    over_bands = hidden((draws[:, :, 0] * (MASKED_BANDS * bands + 1)).floor(), draws[:, :, 1], bands, bands)
    width = torch.minimum((draws[:, :, 2] * (widest + 1)).floor(), count / 4)  # most of a short recording remains
    over_time = hidden(width, draws[:, :, 3], count, length)
    masked = (over_bands[:, None] | over_time[..., None]) & keep[..., None]
    return torch.where(masked, mean[:, None, None], frames)
