"""Random numbers that are a function of their key and place, the same for ever."""

from __future__ import annotations

import numpy as np
import pytest

from regard.text.random_streams import mixed_fractions, random_keys


def test_mixed_fractions_are_those_of_splitmix64() -> None:
    """The first numbers of SplitMix64 seeded with 0 and 1, as published with it; of these the upper 24 bits."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0x910A2DEC89025CC1]
    keys, counts = np.array([0, 7, 1], np.uint64), np.array([3, 0, 1])
    drawn = mixed_fractions(keys, counts)
    assert drawn.tolist() == [(number >> 40) / 2**24 for number in published]


def test_mixed_fractions_depend_on_key_and_place_alone() -> None:
    keys, counts = random_keys(50, 3), np.arange(50) % 7
    drawn = np.split(mixed_fractions(keys, counts), np.cumsum(counts)[:-1])
    for i in (3, 20, 49):
        assert mixed_fractions(keys[i : i + 1], np.array([9]))[: counts[i]].tolist() == drawn[i].tolist()


def test_mixed_fractions_are_uniform() -> None:
    drawn = mixed_fractions(random_keys(4_000, 1), np.full(4_000, 10)).reshape(4_000, 10)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert drawn.mean() == pytest.approx(1 / 2, abs=0.01)
    assert drawn.var() == pytest.approx(1 / 12, abs=0.002)
    correlations = np.corrcoef(drawn, rowvar=False) - np.eye(10)  # between places
    assert np.abs(correlations).max() < 0.07
    # whole numbers can be added without rounding up to the next one
    assert (199_999 + mixed_fractions(random_keys(1, 5), np.array([100_000])) < 200_000).all()
