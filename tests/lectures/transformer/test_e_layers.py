"""E1, E2: layer normalisation and the position-wise feed-forward net."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.feedforward import FeedForward
from regard.layers.normalization import LayerNorm, layer_norm


def test_E1_formula_by_hand():
    # mean 5, squared distances 9, 1, 1, 9: variance 20 / 4 = 5 with 1/p (with 1/(p-1) it would be 6.67)
    x = torch.tensor([2.0, 4.0, 6.0, 8.0])
    norm = LayerNorm(4, eps=4.0)  # sigma = sqrt(5 + 4) = 3
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        norm.bias.copy_(torch.tensor([0.5, 0.0, 0.0, -1.0]))
    by_hand = torch.tensor([-1 + 0.5, 2 * -1 / 3, 3 * 1 / 3, 4 * 1 - 1])
    torch.testing.assert_close(norm(x), by_hand)
    torch.testing.assert_close(layer_norm(x, norm.weight, norm.bias, eps=4.0), by_hand)


def test_E1_mean_zero_and_deviation_one():
    y = LayerNorm(64)(torch.randn(2, 3, 64) * 5 + 7)
    torch.testing.assert_close(y.mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.std(-1, correction=0), torch.ones(2, 3), atol=1e-5, rtol=0)


def test_E1_over_the_features_of_one_token_alone():
    x = torch.randn(2, 3, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(LayerNorm(8)(x)[0, 1].sin().sum(), x)
    assert gradient[0, 1].ne(0).all()
    gradient[0, 1] = 0
    assert gradient.eq(0).all()


def test_E1_no_running_statistics():
    norm, batch_norm = LayerNorm(8), nn.BatchNorm1d(8)
    assert list(batch_norm.buffers()) and not list(norm.buffers())
    x = torch.randn(16, 8) * 3 + 5
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    training = norm.train()(x)
    assert torch.equal(norm.eval()(x), training)  # training and use are one and the same
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    assert not torch.allclose(batch_norm.train()(x), batch_norm.eval()(x))


def test_E1_tiny_batches_any_length_online():
    norm, batch_norm = LayerNorm(8), nn.BatchNorm1d(8)
    x = torch.randn(4, 6, 8)
    whole = norm(x)
    torch.testing.assert_close(norm(x[:1]), whole[:1])  # a batch of one
    torch.testing.assert_close(norm(x[:, :2]), whole[:, :2])  # another length
    online = torch.stack([norm(x[:, t]) for t in range(6)], dim=1)  # no statistics per time step
    torch.testing.assert_close(online, whole)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        batch_norm(x[0, :1])
    assert not torch.allclose(batch_norm(x[:2, 0]), batch_norm(x[:, 0])[:2])


@pytest.mark.parametrize("bias", [True, False])
def test_E2_formula(bias):
    net = FeedForward(dim=4, hidden=6, bias=bias)
    W_1, W_2 = net.up.weight.T, net.down.weight.T  # (4, 6), (6, 4)
    b_1, b_2 = (net.up.bias, net.down.bias) if bias else (0.0, 0.0)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(net(x), torch.clamp(x @ W_1 + b_1, min=0) @ W_2 + b_2)
    assert sum(p.numel() for p in net.parameters()) == 4 * 6 + 6 * 4 + bias * (6 + 4)


def test_E2_numbers_by_hand():
    net = FeedForward(dim=2, hidden=3)
    with torch.no_grad():
        net.up.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        net.up.bias.copy_(torch.tensor([0.0, 1.0, -4.0]))
        net.down.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 5.0]]))
        net.down.bias.copy_(torch.tensor([0.5, 0.0]))
    # x = (2, -3): x W_1 + b_1 = (2, -2, -5), ReLU (2, 0, 0), times W_2 + b_2 = (2.5, 0)
    # x = (1, 4):  (1, 5, 1), ReLU the same, (1 + 10 + 3 + 0.5, -5 + 5) = (14.5, 0)
    assert net(torch.tensor([[2.0, -3.0], [1.0, 4.0]])).tolist() == [[2.5, 0.0], [14.5, 0.0]]


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu"])
def test_E2_the_same_at_every_position(activation):
    net = FeedForward(dim=4, hidden=6, activation=activation)
    x = torch.randn(2, 5, 4)
    y = net(x)
    for t in range(5):
        torch.testing.assert_close(net(x[:, t]), y[:, t])
    order = torch.randperm(5)
    torch.testing.assert_close(net(x[:, order]), y[:, order])


def test_E2_different_in_every_block():
    one, other = FeedForward(dim=4, hidden=6), FeedForward(dim=4, hidden=6)
    assert not {id(p) for p in one.parameters()} & {id(p) for p in other.parameters()}
    assert not torch.equal(one.up.weight, other.up.weight)
