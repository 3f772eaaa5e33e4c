"""Exact heads and random-feature heads in one layer: each is what it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import regard
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention

D, HEADS, WIDTH = 16, 4, 4


def mixed(exact_heads: tuple[int, ...] = (2, 0), **settings: Any) -> MixedAttention:
    """Four heads of which these are exact."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": D, "d_k": WIDTH, "d_v": WIDTH, "output": False}
    window = settings.pop("window", None)
    return (
        MixedAttention(
            exact=MultiHeadAttention(**sizes, heads=len(exact_heads), window=window),
            random=RandomFeatureAttention(**sizes, heads=HEADS - len(exact_heads), features=6, **settings),
            exact_heads=exact_heads,
        )
        .double()
        .eval()
    )


def test_heads_are_those_of_the_parts_and_keep_their_numbers() -> None:
    layer, x = mixed(), torch.randn(2, 7, D, dtype=torch.float64)
    y, weights = layer(x, causal=True, return_weights=True)
    exact, exact_weights = layer.exact(x, causal=True, return_weights=True)
    random, random_weights = layer.random(x, causal=True, return_weights=True)
    torch.testing.assert_close(y, layer.output(torch.cat([exact, random], dim=-1)))
    assert layer.random_heads == (1, 3) and weights.shape == (2, HEADS, 7, 7)
    torch.testing.assert_close(weights[:, [2, 0]], exact_weights)
    torch.testing.assert_close(weights[:, [1, 3]], random_weights)
    torch.testing.assert_close(layer(x, causal=True), y)


@pytest.mark.parametrize("window", [None, 3])
def test_steps_equal_the_whole_and_rows_go_along(window: int | None) -> None:
    layer, x = mixed(window=window, gate=True), torch.randn(3, 9, D, dtype=torch.float64)
    with torch.no_grad():
        want, cache = layer(x, causal=True), layer.new_cache(3, 9)
        torch.testing.assert_close(layer(x[:, :4], causal=True, cache=cache), want[:, :4])
        rows = torch.tensor([2, 0])
        chosen, young = cache.select(rows), layer.new_cache(1, 9)
        layer(x[1:2, :2], causal=True, cache=young)
        joined = cache.join([chosen, young])  # two texts of 4 tokens and one of 2
        assert joined.positions(1)[:, 0].tolist() == [4, 4, 2]
        for t in range(3):
            new = torch.stack([x[2, 4 + t], x[0, 4 + t], x[1, 2 + t]])[:, None]
            got = layer(new, causal=True, cache=joined)
            torch.testing.assert_close(got[:, 0], torch.stack([want[2, 4 + t], want[0, 4 + t], want[1, 2 + t]]))
        torch.testing.assert_close(layer(x[:, 4:5], causal=True, cache=cache), want[:, 4:5])  # and the old one stays


def test_cross_attention_of_beams_leaves_padding_out() -> None:
    layer = mixed()
    text, query = torch.randn(2, 5, D, dtype=torch.float64), torch.randn(6, 1, D, dtype=torch.float64)
    keep = torch.tensor([[True] * 5, [True, True, True, False, False]])[:, None, None]
    memory = layer.project_source(text, mask=keep)
    assert memory.length == 5
    got = layer(query, mask=keep, cache=memory)  # three rows to each text
    owner = torch.tensor([0, 0, 0, 1, 1, 1])
    torch.testing.assert_close(got, layer(query, text[owner], mask=keep[owner]))
    one = layer(query[3:], text[1:, :3].expand(3, -1, -1))
    torch.testing.assert_close(got[3:], one)
    both = memory.join([memory.select(torch.tensor([1])), memory])
    rows = torch.tensor([1, 0, 1])
    again = layer(query[:3], mask=keep[rows], cache=both)
    torch.testing.assert_close(again, layer(query[:3], text[rows], mask=keep[rows]))


def test_one_name_is_recorded_and_generation_has_the_maps_of_the_whole() -> None:
    layer, x = mixed(window=3), torch.randn(2, 6, D, dtype=torch.float64)
    with torch.no_grad(), regard.record(layer) as whole:
        layer(x, causal=True)
    with torch.no_grad(), regard.record(layer) as steps:
        cache = layer.new_cache(2, 6)
        for t in range(6):
            layer(x[:, t : t + 1], causal=True, cache=cache)
    assert list(whole) == ["attention"]
    torch.testing.assert_close(steps["attention"], whole["attention"])


def test_weights_of_a_text_that_nobody_recorded_from_its_start_are_refused() -> None:
    layer = RandomFeatureAttention(dim=D, heads=2)
    cache = layer.new_cache(1)
    with regard.record(layer), pytest.raises(ValueError, match="a state keeps sums, not single keys"):
        layer(torch.randn(1, 2, D), causal=True, cache=cache)


@pytest.mark.parametrize("exact_heads", [(0,), (0, 0), (0, 4), (0, 1, 2)])
def test_head_numbers_must_fit(exact_heads: tuple[int, ...]) -> None:
    layer = mixed()
    with pytest.raises(ValueError, match="exact_heads must name 2 of the heads 0 to 3, each once"):
        MixedAttention(exact=layer.exact, random=layer.random, exact_heads=exact_heads)


def test_parts_must_fit() -> None:
    layer = mixed()
    with pytest.raises(ValueError, match="output=False"):
        MixedAttention(exact=MultiHeadAttention(dim=D, heads=2), random=layer.random, exact_heads=(0, 1))
    other = MultiHeadAttention(dim=8, heads=2, output=False)
    with pytest.raises(ValueError, match="dim=8 and dim=16"):
        MixedAttention(exact=other, random=layer.random, exact_heads=(0, 1))


def test_dropout_leaves_out_whole_keys_and_only_in_training() -> None:
    torch.manual_seed(0)
    layer = RandomFeatureAttention(dim=D, heads=2, dropout=0.5)
    x = torch.randn(1, 40, D)
    with torch.no_grad():
        _, dropped = layer.train()(x, return_weights=True)
        _, whole = layer.eval()(x, return_weights=True)
    assert (whole > 0).all()
    columns = (dropped == 0).float().mean(2)  # (1, H, n): a key is there for every query or for none
    assert set(columns.unique().tolist()) == {0.0, 1.0} and 0.2 < columns.mean() < 0.8
    assert not torch.equal(columns[:, 0], columns[:, 1])
    with pytest.raises(ValueError, match="dropout must be at least 0"):
        RandomFeatureAttention(dim=D, heads=2, dropout=1.0)
