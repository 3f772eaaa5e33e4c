"""Log-mel frames: how loud each band of frequencies is, every few milliseconds.

The bands are equally wide on the mel scale of Slaney 1998, which follows hearing: linear up to 1 kHz, then logarithmic.
Numbers are those of librosa's `melspectrogram` with its defaults.

    B recordings   S samples   T frames   F frequencies of a frame   M bands
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LINEAR = 3 / 200  # mels in a Hz, below the break
BREAK = 1000.0  # Hz
STEP = np.log(6.4) / 27  # of the logarithm of the frequency in a mel, above the break
SMALLEST = 1e-10  # power
RANGE = 8.0 * np.log(10)  # 80 dB: what is quieter than the loudest cell by more is as if it were equal to that
PADDING = float("-inf")  # in all bands of a frame after the end of a recording


def to_mel(hertz: NDArray | float) -> NDArray[np.float64]:
    """Return frequencies on the mel scale."""
    hertz = np.asarray(hertz, np.float64)
    above = BREAK * LINEAR + np.log(np.maximum(hertz, BREAK) / BREAK) / STEP
    return np.where(hertz < BREAK, hertz * LINEAR, above)


def to_hertz(mels: NDArray | float) -> NDArray[np.float64]:
    """Return the frequencies of points on the mel scale."""
    mels = np.asarray(mels, np.float64)
    above = BREAK * np.exp(STEP * (np.maximum(mels, BREAK * LINEAR) - BREAK * LINEAR))
    return np.where(mels < BREAK * LINEAR, mels / LINEAR, above)


def mel_filters(rate: int, points: int, bands: int) -> NDArray[np.float64]:
    """Return the filters (M, F) for frames of `points` samples: triangles of area 1 that overlap by half."""
    frequencies = np.linspace(0, rate / 2, points // 2 + 1)  # (F,)
    corners = to_hertz(np.linspace(0, to_mel(rate / 2), bands + 2))
    left, centre, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]  # (M, 1)
    rising = (frequencies - left) / (centre - left)
    falling = (right - frequencies) / (right - centre)
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)


class LogMel:
    """Computes log-mel frames of recordings with one rate.

    A frame covers `window` seconds, and one begins every `hop` seconds. Recordings are padded with zeros so that frame
    i is centred at i · hop.
    """

    def __init__(self, *, rate: int, bands: int, window: float = 0.025, hop: float = 0.010) -> None:
        self.rate, self.bands = rate, bands
        self.window, self.hop = max(2, round(rate * window)), max(1, round(rate * hop))  # samples
        self.points = 2 ** int(np.ceil(np.log2(self.window)))  # of a Fourier transform

    def frames(self, samples: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
        """Return the number of frames of a recording with so many samples."""
        return 1 + samples // self.hop

    def __call__(self, samples: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Recordings (B, S) with these lengths (B,) -> frames (B, T, M); those after the end are PADDING.

        Without lengths, all recordings have S samples.
        """
        filters, window = _constants(self.rate, self.points, self.bands, self.window, samples.device)
        spectrum = torch.stft(
            samples.float(),
            self.points,
            self.hop,
            self.window,
            window,
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        power = spectrum.real.square() + spectrum.imag.square()  # (B, F, T)
        logs = (filters @ power).clamp(min=SMALLEST).log().transpose(1, 2)  # (B, T, M)
        if lengths is None:
            lengths = torch.full((len(samples),), samples.shape[1], device=samples.device)
        keep = torch.arange(logs.shape[1], device=logs.device) <= lengths[:, None] // self.hop  # (B, T)
        loudest = logs.masked_fill(~keep[..., None], PADDING).amax((1, 2), keepdim=True)
        return torch.maximum(logs, loudest - RANGE).masked_fill(~keep[..., None], PADDING)


@cache
def _constants(rate: int, points: int, bands: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the filters (M, F) and the Hann window on a device."""
    filters = torch.from_numpy(mel_filters(rate, points, bands)).float().to(device)
    return filters, torch.hann_window(window, device=device)


def pad_frames(recordings: list[Tensor]) -> Tensor:
    """Return frames (T, M) of several recordings as one tensor (B, longest, M), with PADDING after the end of each."""
    return torch.nn.utils.rnn.pad_sequence(recordings, batch_first=True, padding_value=PADDING)
