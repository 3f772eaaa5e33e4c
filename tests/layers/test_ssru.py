"""The simpler simple recurrent unit, against its equations written out."""

from __future__ import annotations

import pytest
import torch

from regard.layers.ssru import SSRU, SSRUCache


def layer(dim: int = 6) -> SSRU:
    torch.manual_seed(0)
    made = SSRU(dim=dim).double()
    torch.nn.init.normal_(made.forget.bias)
    return made


def test_kim_et_al_2019_token_by_token() -> None:
    ssru, x = layer(), torch.randn(2, 5, 6, dtype=torch.float64)
    W, W_f, b_f = ssru.input.weight, ssru.forget.weight, ssru.forget.bias
    for row in range(2):
        state = [0.0] * 6
        for t in range(5):
            f = torch.sigmoid(W_f @ x[row, t] + b_f)
            new = W @ x[row, t]
            state = [float(f[i] * state[i] + (1 - f[i]) * new[i]) for i in range(6)]
            expected = [max(number, 0.0) for number in state]
            assert ssru(x)[row, t].tolist() == pytest.approx(expected, abs=1e-12)


def test_the_state_is_a_weighted_mean_of_what_the_tokens_bring() -> None:
    ssru, x = layer(), torch.randn(2, 7, 6, dtype=torch.float64)
    weights = ssru.weights(x)  # (B, t, s, p)
    states = (weights * ssru.input(x)[:, None]).sum(2)
    torch.testing.assert_close(ssru(x), torch.relu(states))
    assert (weights.sum(2) < 1).all() and (weights >= 0).all()  # the rest is the weight of the state before, 0
    assert weights[:, 2, 3:].abs().max() == 0  # nothing from later tokens


def test_steps_with_a_cache_are_one_pass() -> None:
    ssru, x = layer(), torch.randn(3, 6, 6, dtype=torch.float64)
    cache = ssru.new_cache(3, 6)
    steps = [ssru(x[:, :2], cache=cache), *(ssru(x[:, t : t + 1], cache=cache) for t in range(2, 6))]
    torch.testing.assert_close(torch.cat(steps, dim=1), ssru(x))
    assert cache.positions(2).tolist() == [[6, 7]] * 3


def test_rows_of_a_cache_are_selected_kept_and_joined() -> None:
    ssru, x = layer(), torch.randn(3, 4, 6, dtype=torch.float64)
    cache = ssru.new_cache(3, 4)
    ssru(x[:, :3], cache=cache)
    whole = ssru(x)[:, 3:]
    rows = torch.tensor([2, 0])
    joined = SSRUCache.join([cache.select(rows), cache.select(torch.tensor([1]))])
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(ssru(x[order, 3:], cache=joined), whole[order])
    cache.keep(rows, rows)
    assert len(cache) == 2
    torch.testing.assert_close(ssru(x[rows, 3:], cache=cache), whole[rows])


def test_a_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="left to right"):
        layer()(torch.zeros(1, 2, 6, dtype=torch.float64), causal=False)
