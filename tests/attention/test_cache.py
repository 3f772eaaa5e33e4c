"""Caches: token by token, chunk by chunk and row by row, the same as all at once.

B batch   T length   D width   C capacity
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from regard import KVCache, MultiHeadAttention, StaticCache, masks
from regard.attention.masks.algebra import Mask

SCHEMES = [None, "rotary", "relative", "t5", "alibi"]
by_position = pytest.mark.parametrize("position", SCHEMES)
by_kind = pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
T = 9


def make_layer(position: str | None = None, kv_heads: int = 2) -> MultiHeadAttention:
    return MultiHeadAttention(dim=16, heads=4, kv_heads=kv_heads, position=position, d_v=3, qk_norm=True).double()


def row_of(cache: StaticCache, b: int) -> StaticCache:
    """One row of a static cache as a cache of its own, on the same memory."""
    return StaticCache(cache.k[b : b + 1], cache.v[b : b + 1], cache.lengths[b : b + 1])


@by_position
@by_kind
@settings(max_examples=8)
@given(chunks=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@torch.no_grad()
def test_chunks_are_the_whole(static: bool, position: str | None, chunks: list[int]) -> None:
    layer = make_layer(position)
    total = sum(chunks)
    x = torch.randn(2, total, 16).double()
    want = layer(x, causal=True)
    cache = layer.new_cache(2, total + 3, static=static)
    got = torch.cat([layer(part, causal=True, cache=cache) for part in x.split(chunks, 1)], 1)
    assert torch.allclose(got, want, atol=1e-12)


@by_position
@torch.no_grad()
def test_rows_at_different_places(position: str | None) -> None:
    """Continuous batching: sentences of different age in one step, and a new one in the place of a finished one."""
    layer = make_layer(position)
    x = torch.randn(3, T, 16).double()
    want = layer(x, causal=True)
    cache = layer.new_cache(3, T, static=True)
    starts = [1, 5, 3]
    for b, start in enumerate(starts):  # each row is read in by itself
        got = layer(x[b : b + 1, :start], causal=True, cache=row_of(cache, b))
        assert torch.allclose(got, want[b : b + 1, :start], atol=1e-12)
    assert cache.lengths.tolist() == starts
    for step, m in ((0, 1), (1, 2), (3, 1)):
        new = torch.stack([x[b, start + step : start + step + m] for b, start in enumerate(starts)])
        got = layer(new, causal=True, cache=cache)
        for b, start in enumerate(starts):
            assert torch.allclose(got[b], want[b, start + step : start + step + m], atol=1e-12)
    cache.lengths[1] = 0  # row 1 is done; a new sentence takes its place, over the old keys
    got = layer(x[2:3, :4], causal=True, cache=row_of(cache, 1))
    assert torch.allclose(got, want[2:3, :4], atol=1e-12)


MASKS = {
    "causal": lambda ids, keep: masks.causal(),
    "window": lambda ids, keep: masks.window(2, 0),
    "document": lambda ids, keep: masks.causal() & masks.document(ids),
    "keep": lambda ids, keep: masks.causal() & masks.padding(keep),
    "either": lambda ids, keep: masks.causal() & (masks.window(1) | masks.document(ids)),
}


@by_kind
@pytest.mark.parametrize("kind", MASKS)
@torch.no_grad()
def test_masks_stand_where_the_tokens_stand(static: bool, kind: str) -> None:
    """A rule about positions means the text, not the buffer that it lies in."""
    layer = make_layer()
    x, ids, keep = torch.randn(2, T, 16).double(), torch.randint(0, 2, (2, T)), torch.rand(2, T) < 0.7
    want = layer(x, mask=MASKS[kind](ids, keep))
    spare = 4
    cache, n, parts = layer.new_cache(2, T + spare, static=static), 0, []
    for m in (3, 1, 4, 1):
        n += m
        keys = T + spare if static else n  # a mask has one entry for each key that there is
        room = torch.zeros(2, spare, dtype=torch.long)
        mask: Mask = MASKS[kind](torch.cat([ids, room], 1)[:, :keys], torch.cat([keep, room.bool()], 1)[:, :keys])
        parts.append(layer(x[:, n - m : n], mask=mask, cache=cache))
    assert torch.allclose(torch.cat(parts, 1), want, atol=1e-12)


@by_kind
@torch.no_grad()
def test_a_bool_tensor_with_a_cache(static: bool) -> None:
    layer = make_layer()
    x, hidden = torch.randn(2, 5, 16).double(), torch.tensor([True, False, True, True, True])
    want = layer(x, mask=hidden, causal=True)
    cache = layer.new_cache(2, 5, static=static)
    first = layer(x[:, :3], mask=hidden if static else hidden[:3], causal=True, cache=cache)
    second = layer(x[:, 3:], mask=hidden, causal=True, cache=cache)
    assert torch.allclose(torch.cat([first, second], 1), want, atol=1e-12)


@by_kind
@torch.no_grad()
def test_a_cache_without_causal_shows_all_that_is_written(static: bool) -> None:
    layer = make_layer()
    x = torch.randn(2, 5, 16).double()
    cache = layer.new_cache(2, 8, static=static)
    layer(x[:, :3], cache=cache)
    got, weights = layer(x[:, 3:], cache=cache, return_weights=True)
    assert torch.allclose(got, layer(x)[:, 3:], atol=1e-12)
    assert not weights[..., 5:].any()


@by_kind
@torch.no_grad()
def test_select_takes_rows_in_any_order(static: bool) -> None:
    """Beams: a row may be copied and another dropped; the old cache stays as it was."""
    layer = make_layer("rotary")
    x, rows = torch.randn(3, T, 16).double(), torch.tensor([2, 0, 0, 1])
    cache = layer.new_cache(3, T, static=static)
    layer(x[:, :4], causal=True, cache=cache)
    chosen = cache.select(rows)
    got = layer(x[rows, 4:6], causal=True, cache=chosen)
    assert torch.allclose(got, layer(x[rows], causal=True)[:, 4:6], atol=1e-12)
    again = layer(x[:, 4:6], causal=True, cache=cache)
    assert torch.allclose(again, layer(x, causal=True)[:, 4:6], atol=1e-12)


@by_kind
@torch.no_grad()
def test_keep_copies_what_moved_and_nothing_else(static: bool) -> None:
    layer = make_layer("rotary")
    x, rows = torch.randn(4, T, 16).double(), torch.tensor([0, 3, 3])
    cache = layer.new_cache(4, T, static=static)
    layer(x[:, :4], causal=True, cache=cache)
    before = cache.k
    cache.keep(rows, torch.tensor([1, 2]))
    assert cache.k.data_ptr() == before.data_ptr() and len(cache.k) == len(cache.v) == 3
    got = layer(x[rows, 4:6], causal=True, cache=cache)
    assert torch.allclose(got, layer(x[rows], causal=True)[:, 4:6], atol=1e-12)


def test_where_new_tokens_stand() -> None:
    layer = make_layer()
    growing, static = layer.new_cache(2, 8), layer.new_cache(2, 8, static=True)
    assert isinstance(growing, KVCache) and isinstance(static, StaticCache)
    assert growing.capacity == static.capacity == 8
    growing.length, static.lengths[:] = 3, torch.tensor([3, 5])
    assert growing.positions(2).tolist() == [3, 4]
    assert static.positions(2).tolist() == [[3, 4], [5, 6]]


def test_a_cache_has_the_layer_s_sizes_and_dtype() -> None:
    layer = make_layer(kv_heads=1).bfloat16()
    for cache in (layer.new_cache(2, 8), layer.new_cache(2, 8, static=True)):
        assert cache.k.shape == (2, 1, 8, 4) and cache.v.shape == (2, 1, 8, 3)
        assert cache.k.dtype == cache.v.dtype == torch.bfloat16


@by_kind
@torch.no_grad()
def test_a_full_cache_says_so(static: bool) -> None:
    layer, x = make_layer(), torch.randn(2, 3, 16).double()
    cache = layer.new_cache(2, 4, static=static)
    layer(x, cache=cache)
    with pytest.raises(ValueError, match="has room for 4 tokens, holds 3 and was given 3 more: allocate a larger one"):
        layer(x, cache=cache)
    layer(x[:, :1], cache=cache)  # what was refused left nothing behind
    with pytest.raises(ValueError, match="room for 4 tokens, holds 4 and was given 1 more"):
        layer(x[:, :1], cache=cache)


@torch.no_grad()
def test_a_memory_is_cross_attention() -> None:
    layer = MultiHeadAttention(dim=16, heads=4, kv_heads=2, key_dim=6, value_dim=5, qk_norm=True).double()
    x, key, value = torch.randn(3, 4, 16).double(), torch.randn(3, 7, 6).double(), torch.randn(3, 7, 5).double()
    mask = masks.padding([7, 2, 5])
    want, want_weights = layer(x, key, value, mask=mask, return_weights=True)
    memory = layer.project_source(key, value)
    for i in range(4):
        got, weights = layer(x[:, i : i + 1], cache=memory, mask=mask, return_weights=True)
        assert torch.allclose(got, want[:, i : i + 1], atol=1e-12)
        assert torch.allclose(weights, want_weights[:, :, i : i + 1], atol=1e-12)
    rows = torch.tensor([2, 2, 0])
    got = layer(x[rows], cache=memory.select(rows), mask=masks.padding(torch.tensor([7, 2, 5])[rows]))
    assert torch.allclose(got, want[rows], atol=1e-12)
    # Rows side by side may share a text: here the four queries of each, as a beam's.
    beams, weights = layer(x.view(12, 1, 16), cache=memory, mask=mask, return_weights=True)
    assert torch.allclose(beams.view(3, 4, 16), want, atol=1e-12)
    assert torch.allclose(weights, want_weights.transpose(1, 2).reshape(12, 4, 1, 7), atol=1e-12)


@pytest.mark.parametrize("form", ["projected", "slice"])
@torch.no_grad()
def test_a_memory_of_one_text_for_keys_and_values(form: str) -> None:
    layer = MultiHeadAttention(dim=16, heads=4, form=form)
    x, text = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    assert torch.allclose(layer(x, cache=layer.project_source(text)), layer(x, text), atol=1e-6)


def test_gradients_flow_through_a_memory() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    text = torch.randn(2, 5, 8, requires_grad=True)
    x = torch.randn(2, 3, 8)

    def grads(y: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(y.pow(2).sum(), [text, *layer.parameters()])

    for got, want in zip(grads(layer(x, cache=layer.project_source(text))), grads(layer(x, text)), strict=True):
        assert torch.allclose(got, want, atol=1e-5)
