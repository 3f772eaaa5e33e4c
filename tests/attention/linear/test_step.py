"""One token more: the short way in place gives what the general way gives, and its memory never grows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.attention.linear.feature_maps import MAPS
from regard.attention.linear.layer import RandomFeatureAttention


def run(layer: RandomFeatureAttention, x: torch.Tensor, prompt: int) -> tuple[torch.Tensor, Any]:
    """The layer over a text (B, L, dim): a prompt at once, then token by token."""
    cache = layer.new_cache(len(x))
    parts = [layer(x[:, :prompt], causal=True, cache=cache)] if prompt else []
    parts += [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(prompt, x.shape[1])]
    return torch.cat(parts, dim=1), cache


@given(
    rows=st.integers(1, 3),
    heads=st.sampled_from([(4, 4), (4, 2), (4, 1)]),
    name=st.sampled_from(MAPS),
    gate=st.booleans(),
    position=st.sampled_from([None, "rotary"]),
    prompt=st.integers(0, 3),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)
def test_steps_equal_the_whole(
    rows: int, heads: tuple[int, int], name: str, gate: bool, position: str | None, prompt: int, scale: float
) -> None:
    torch.manual_seed(rows)
    layer = RandomFeatureAttention(
        dim=16, heads=heads[0], kv_heads=heads[1], features=4, map=name, gate=gate, position=position,
        normalize=None if name == "elu" else scale == 1.0,
    ).double()  # fmt: skip
    x = scale * torch.randn(rows, 7, 16, dtype=torch.float64)
    with torch.no_grad():
        want = layer(x, causal=True)
        got, cache = run(layer, x, prompt)
    assert (cache.lengths == 7).all()
    if name not in ("trig", "plain") or scale == 1.0:  # their sums may cancel to nothing but rounding
        torch.testing.assert_close(got, want, atol=1e-9, rtol=1e-6)
    with torch.enable_grad():  # the general way, token by token
        again, other = run(layer, x, prompt)
    torch.testing.assert_close(got, again.detach(), atol=1e-9, rtol=1e-6)
    for part in ("S", "z", "log_scale", "log_decay"):
        torch.testing.assert_close(getattr(cache.state, part), getattr(other.state, part).detach())
    assert cache.state.draw == other.state.draw == layer.features.draw


def test_a_step_stays_in_its_memory() -> None:
    """No tensor of the cache is a new one after a step, so a CUDA graph can record it; a copy is not written over."""
    layer = RandomFeatureAttention(dim=16, heads=2, features=8, gate=True)
    cache = layer.new_cache(3)
    with torch.no_grad():
        layer(torch.randn(3, 200, 16), causal=True, cache=cache)
        assert cache.state.S.untyped_storage().nbytes() == cache.state.S.nbytes  # and none of the chunks' states stay
        state = cache.state
        before = [part.data_ptr() for part in (state.S, state.z, state.log_scale, state.log_decay, cache.lengths)]
        kept, chosen = state.fork(), cache.select(torch.tensor([2, 0]))
        layer(torch.randn(3, 1, 16), causal=True, cache=cache)
    state = cache.state
    assert before == [part.data_ptr() for part in (state.S, state.z, state.log_scale, state.log_decay, cache.lengths)]
    assert not torch.equal(kept.S, state.S) and torch.equal(chosen.state.S, kept.S[[2, 0]])
    assert cache.lengths.tolist() == [201] * 3 and chosen.lengths.tolist() == [200] * 2


def test_half_precision_keeps_its_sums_in_float32() -> None:
    layer = RandomFeatureAttention(dim=16, heads=2, features=8, position="rotary")
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        want = layer(x, causal=True)
        got, cache = run(layer.bfloat16(), x.bfloat16(), 2)
    assert got.dtype == torch.bfloat16 and cache.state.S.dtype == torch.float32
    torch.testing.assert_close(got.float(), want, atol=0.03, rtol=0.03)


def test_another_draw_is_refused() -> None:
    layer = RandomFeatureAttention(dim=16, heads=2, redraw_every=1)
    cache = layer.new_cache(1)
    layer.train().features.redraw(3)
    with torch.no_grad(), pytest.raises(ValueError, match="draw 0 of seed 0, and W is now draw 3"):
        layer(torch.randn(1, 1, 16), causal=True, cache=cache)
