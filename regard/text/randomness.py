"""Random numbers that are a function of their stream: the same in every process and on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_keys(count: int, *stream: int) -> NDArray[np.uint64]:
    """`count` random 64-bit numbers for the stream that these numbers name, such as (seed, epoch, purpose).

    The raw words of the generator: numpy promises them for ever, which it does not for shuffles and draws.
    """
    return np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)


def random_fractions(count: int, *stream: int) -> NDArray[np.float64]:
    """`count` random numbers in [0, 1) for a stream, by the upper 53 bits of random_keys."""
    return (random_keys(count, *stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53
