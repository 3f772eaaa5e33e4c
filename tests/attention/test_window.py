"""Attention to the tokens near by: a mask over the whole text, a cache of the window's size when it grows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, strategies as st

from regard.attention.cache import WindowCache
from regard.attention.multihead import MultiHeadAttention

SCHEMES = (None, "rotary", "relative", "t5", "alibi")


@given(
    window=st.integers(1, 6),
    prompt=st.integers(0, 8),
    position=st.sampled_from(SCHEMES),
    groups=st.sampled_from([1, 4]),
)
def test_steps_equal_the_whole(window: int, prompt: int, position: str | None, groups: int) -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(dim=16, heads=4, kv_heads=groups, window=window, position=position).double().eval()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    with torch.no_grad():
        want, cache = layer(x, causal=True), layer.new_cache(2, 0)
        parts = [layer(x[:, :prompt], causal=True, cache=cache)] if prompt else []
        parts += [layer(x[:, t : t + 1], causal=True, cache=cache) for t in range(prompt, 9)]
    torch.testing.assert_close(torch.cat(parts, dim=1), want)
    assert isinstance(cache, WindowCache) and cache.k.shape[2] == window - 1  # however long the text


def test_a_query_sees_the_window_and_no_more() -> None:
    layer = MultiHeadAttention(dim=8, heads=2, window=3)
    x = torch.randn(1, 8, 8)
    _, causal = layer(x, causal=True, return_weights=True)
    _, both = layer(x, return_weights=True)
    near = torch.ones(8, 8).tril().triu(-2)
    assert torch.equal((causal[0, 0] > 0).float(), near)
    assert torch.equal((both[0, 0] > 0).float(), ((near + near.T) > 0).float())


def test_texts_of_different_ages_share_a_cache() -> None:
    layer = MultiHeadAttention(dim=8, heads=2, window=4).double().eval()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    with torch.no_grad():
        want, old, young = layer(x, causal=True), layer.new_cache(1, 0), layer.new_cache(1, 0)
        layer(x[:1, :5], causal=True, cache=old)
        layer(x[1:, :1], causal=True, cache=young)
        cache = old.join([young, old])
        cache.keep(torch.tensor([1, 0]), torch.tensor([0, 1]))
        for t in range(2):
            got = layer(torch.stack([x[0, 5 + t], x[1, 1 + t]])[:, None], causal=True, cache=cache)
            torch.testing.assert_close(got[:, 0], torch.stack([want[0, 5 + t], want[1, 1 + t]]))


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="window must be at least 1"):
        MultiHeadAttention(dim=8, heads=2, window=0)
    layer = MultiHeadAttention(dim=8, heads=2, window=2)
    with pytest.raises(ValueError, match="a window is for self-attention"):
        layer(torch.randn(1, 3, 8), torch.randn(1, 4, 8))
