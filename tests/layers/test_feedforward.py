"""The feed-forward net against torch.nn and transformers, its gates, its dropout and its errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP

from regard.layers.feedforward import FeedForward, gelu_tanh

from ..repeats import by_default


@pytest.mark.parametrize(
    ("activation", "theirs"),
    [("relu", nn.ReLU()), ("gelu", nn.GELU()), ("gelu-tanh", nn.GELU(approximate="tanh")), ("silu", nn.SiLU())],
)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_two_linear_layers(activation, theirs, bias):
    ours = FeedForward(dim=4, hidden=6, activation=activation, bias=bias)
    stack = nn.Sequential(nn.Linear(4, 6, bias=bias), theirs, nn.Linear(6, 4, bias=bias))
    stack.load_state_dict(dict(zip(stack.state_dict(), ours.state_dict().values(), strict=True)), strict=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(ours(x), stack(x))


@pytest.mark.parametrize(("activation", "name"), [("swiglu", "silu"), ("geglu-tanh", "gelu_pytorch_tanh")])
def test_gated_nets_equal_llamas(activation, name):
    ours = FeedForward(dim=4, hidden=6, activation=activation, bias=False)
    sizes = {"hidden_size": 4, "intermediate_size": 6, "num_attention_heads": 1}
    theirs = LlamaMLP(LlamaConfig(**sizes, mlp_bias=False, hidden_act=name))
    gate, up = ours.up.weight.chunk(2)
    state = {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": ours.down.weight}
    theirs.load_state_dict(state, strict=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(ours(x), theirs(x))


def test_dropout_falls_on_the_inner_layer():
    net = FeedForward(dim=4, hidden=6, dropout=1.0)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(net(x), net.down.bias.expand(2, 3, 4))
    whole = FeedForward(dim=4, hidden=6)
    whole.load_state_dict(net.state_dict())
    assert not torch.equal(net(x), whole(x))
    torch.testing.assert_close(net.eval()(x), whole(x))


@pytest.mark.parametrize(
    "activation", by_default({"swiglu"}, ["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu-tanh"])
)
def test_compiles_in_one_graph(activation):
    net = FeedForward(dim=4, hidden=6, activation=activation)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(compiled(x), net(x))


def test_errors():
    with pytest.raises(ValueError, match=r"unknown activation 'tanh'.*\(known: relu, gelu, gelu-tanh, silu, swiglu"):
        FeedForward(dim=4, hidden=6, activation="tanh")
    with pytest.raises(ValueError, match=r"dropout must lie in 0\.\.1, got 1.5"):
        FeedForward(dim=4, hidden=6, dropout=1.5)
    with pytest.raises(ValueError, match="dim and hidden must be at least 1, got 4 and 0"):
        FeedForward(dim=4, hidden=0)
    with pytest.raises(ValueError, match=r"x must be \(…, 4\), since dim is 4, got \(2, 5\)"):
        FeedForward(dim=4, hidden=6)(torch.randn(2, 5))
    with pytest.raises(TypeError, match=r"x must have the weights' dtype torch.float32, got torch.float64"):
        FeedForward(dim=4, hidden=6)(torch.randn(2, 4).double())
    with pytest.raises(ValueError, match=r"x must be on the weights' device cpu, got meta"):
        FeedForward(dim=4, hidden=6)(torch.randn(2, 4, device="meta"))


def test_gelu_by_tanh_is_the_same_compiled() -> None:
    """Compiled code has another form of it: equal to torch's, values and gradients."""
    x = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(gelu_tanh, backend="eager", fullgraph=True)
    found, wanted = compiled(x), F.gelu(x, approximate="tanh")
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (found, wanted)))
