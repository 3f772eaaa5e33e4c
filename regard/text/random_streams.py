"""Random numbers that depend only on the name of their stream: the same in every process and on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_keys(count: int, *stream: int) -> NDArray[np.uint64]:
    """Return `count` random 64-bit numbers of the stream named by these numbers, such as (seed, epoch, purpose).

    These are the raw words of the generator. numpy guarantees that they never change, which it does not for shuffles
    and distributions.
    """
    return np.random.PCG64(np.random.SeedSequence(stream)).random_raw(count)


def random_fractions(count: int, *stream: int) -> NDArray[np.float64]:
    """Return `count` random numbers in [0, 1) of a stream, from the upper 53 bits of random_keys."""
    return (random_keys(count, *stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mixed_fractions(keys: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return counts[i] random numbers in [0, 1) for each keys[i], concatenated; each depends on its key and index.

    Steele et al. 2014, figure 14 (SplitMix). They are multiples of 2**-24, so adding a whole number is exact.
    """
    index = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    z = np.repeat(keys, counts) + (index + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # modulo 2**64
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)  # the last step of the paper changes only lower bits
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24
