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


def mixed_fractions(keys: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """counts[i] random numbers in [0, 1) for each keys[i], one after another, each a function of its key and place.

    Steele et al. 2014, figure 14 (SplitMix). Multiples of 2 to the -24, so that adding a whole number rounds nothing.
    """
    places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    z = np.repeat(keys, counts) + (places + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # modulo 2**64
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)  # what follows changes lower bits only
    return (z >> np.uint64(40)).astype(np.float64) * 2.0**-24
