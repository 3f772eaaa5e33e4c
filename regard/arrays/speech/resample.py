"""Change the rate of a recording: a low-pass filter, a sinc in a Kaiser window, at each new point in time.

S samples   N new samples   K taps of the filter   P phases: distances of a new point from the sample before it
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from regard.arrays.speech.wave_file import Samples

ZEROS = 24  # of the sinc on each side; more make the filter steeper
BETA = 8.6  # of the Kaiser window: what the filter stops is 87 dB quieter
ROLL_OFF = 0.945  # of the highest frequency; where the filter has fallen to half
CHUNK = 2**14  # new samples at a time, to save memory


def resample(samples: Samples, rate: int, new_rate: int) -> Samples:
    """Return samples (S,) of one rate at another one, (N,): N = S · new_rate / rate, rounded up."""
    if rate == new_rate:
        return samples
    filters = _filters(rate // gcd(rate, new_rate), new_rate // gcd(rate, new_rate))  # (P, K)
    phases, taps = filters.shape
    reach = taps // 2
    count = -(-len(samples) * new_rate // rate)
    padded = np.pad(samples, (reach - 1, reach + 1))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps)  # (·, K)
    result = np.empty(count, np.float32)
    for start in range(0, count, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, count))
        before, phase = np.divmod(numbers * (rate // gcd(rate, new_rate)), phases)
        result[numbers] = np.einsum("nk,nk->n", windows[before], filters[phase])
    return result


@lru_cache(maxsize=16)
def _filters(down: int, up: int) -> NDArray[np.float32]:
    """Return the filter of each phase (P, K) for a ratio up / down of the rates; the phases are i / up samples."""
    cutoff = ROLL_OFF * min(1.0, up / down)  # as a share of the highest frequency of the input
    reach = int(np.ceil(ZEROS / cutoff))
    distance = np.arange(up)[:, None] / up - np.arange(-reach + 1, reach + 1)  # (P, K), in samples of the input
    window = np.i0(BETA * np.sqrt(np.clip(1 - (distance / reach) ** 2, 0, None))) / np.i0(BETA)
    return (cutoff * np.sinc(cutoff * distance) * window).astype(np.float32)
