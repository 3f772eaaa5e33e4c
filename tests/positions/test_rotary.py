"""Rotary positions against complex multiplication, and what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.testing import assert_close

from regard.positions import Interpolation, LlamaScaling, Rotary


@given(half=st.integers(1, 6), shift=st.integers(0, 2000), halves=st.booleans())
def test_turns_pairs_like_complex_numbers(half: int, shift: int, halves: bool) -> None:
    D, T = 2 * half, 5
    x = torch.randn(2, 3, T, D, dtype=torch.float64)
    positions = torch.arange(shift, shift + T)
    a, b = (x[..., :half], x[..., half:]) if halves else (x[..., 0::2], x[..., 1::2])
    theta = torch.tensor([10000 ** (-2 * c / D) for c in range(half)], dtype=torch.float64)
    turned = torch.complex(a, b) * torch.exp(1j * positions[:, None] * theta)
    expected = torch.view_as_real(turned).flatten(-2)
    if halves:
        expected = torch.cat((turned.real, turned.imag), -1)
    rotary = Rotary(head_dim=D, layout="halves" if halves else "interleaved")
    # Angles are float32, so their error grows with the position.
    assert_close(rotary.rotate(x, positions), expected, atol=1e-5 + 1e-6 * shift, rtol=0)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_scores_depend_on_the_distance_only(layout: str, fraction: float) -> None:
    rotary = Rotary(head_dim=16, layout=layout, fraction=fraction)
    q, k = torch.randn(2, 1, 1, 8, 16)
    here = rotary.rotate(q, torch.arange(8)) @ rotary.rotate(k, torch.arange(8)).mT
    there = rotary.rotate(q, torch.arange(8) + 100) @ rotary.rotate(k, torch.arange(8) + 100).mT
    apart = rotary.rotate(q, torch.arange(8) + 3) @ rotary.rotate(k, torch.arange(8)).mT
    assert_close(here, there, atol=1e-4, rtol=0)
    assert not torch.allclose(here, apart, atol=1e-2)
    assert_close(rotary.rotate(q, torch.arange(8)).norm(dim=-1), q.norm(dim=-1))


def test_rows_may_stand_at_different_places() -> None:
    rotary = Rotary(head_dim=8)
    x = torch.randn(2, 3, 4, 8)
    rows = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    both = rotary.rotate(x, rows)
    assert_close(both[:1], rotary.rotate(x[:1], rows[0]))
    assert_close(both[1:], rotary.rotate(x[1:], rows[1]))


def test_bfloat16_model_keeps_float32_angles() -> None:
    # A table rounded to bfloat16 would put position 1000 in the wrong place altogether.
    rotary = Rotary(head_dim=8).to(torch.bfloat16)
    x = torch.randn(1, 1, 1, 8)
    position = torch.tensor([1003])
    turned = rotary.rotate(x.bfloat16(), position)
    assert turned.dtype == torch.bfloat16
    assert_close(turned.float(), Rotary(head_dim=8).rotate(x.bfloat16().float(), position), atol=0.01, rtol=0.01)


def test_only_the_first_share_turns() -> None:
    x = torch.randn(1, 2, 3, 16)
    y = Rotary(head_dim=16, fraction=0.25).rotate(x, torch.arange(3) + 1)
    assert torch.equal(y[..., 4:], x[..., 4:])
    assert_close(y[..., :4], Rotary(head_dim=4).rotate(x[..., :4], torch.arange(3) + 1))


def test_scalings() -> None:
    theta = Rotary(head_dim=4).frequencies()
    assert_close(theta, torch.tensor([1.0, 0.01]))
    assert_close(Rotary(head_dim=4, scaling=Interpolation(4.0)).frequencies(), theta / 4)
    # A wave that turns 1, 2.5 and 4 times in the trained length: slow, half way, fast.
    turns = torch.tensor([0.5, 1.0, 2.5, 4.0, 9.0])
    waves = turns * 2 * math.pi / 100
    scaled = LlamaScaling(factor=8.0, low=1.0, high=4.0, trained_length=100)(waves)
    assert_close(scaled / waves, torch.tensor([1 / 8, 1 / 8, (1 + 1 / 8) / 2, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, r"head_dim \* fraction must be even, because pairs are rotated, not 7 \* 1.0 = 7"),
        ({"head_dim": 8, "fraction": 0.1}, r"8 \* 0.1 = 0"),
        ({"head_dim": 8, "fraction": 1.5}, "fraction must be above 0 and at most 1, not 1.5"),
        ({"head_dim": 8, "layout": "pairs"}, "unknown layout 'pairs' \\(known: halves, interleaved\\)"),
        ({"head_dim": 8, "base": -1.0}, "base must be positive, not -1.0"),
    ],
)
def test_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rotary(**arguments)


def test_scalings_refuse() -> None:
    with pytest.raises(ValueError, match="factor must be positive, not 0"):
        Interpolation(0)
    with pytest.raises(ValueError, match="factor must be positive, not -1"):
        LlamaScaling(factor=-1)
    with pytest.raises(ValueError, match=r"low and high must be 0 < low < high, not 4\.0 and 4\.0"):
        LlamaScaling(low=4.0)
    with pytest.raises(ValueError, match="trained_length must be at least 1, not 0"):
        LlamaScaling(trained_length=0)
