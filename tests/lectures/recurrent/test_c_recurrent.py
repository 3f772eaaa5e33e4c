"""C1, C3: recurrent nets, and what speaks for and against them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import regard
from regard.layers.cells import GRUCell, LSTMCell, RNNCell
from regard.layers.recurrent import GRU, LSTM, RNN

BACKENDS = ("torch", "reference")


@pytest.mark.parametrize("backend", BACKENDS)
def test_C1_printed_shapes(backend):
    layer = LSTM(10, 20, 2)
    y, (h, c) = layer(torch.randn(5, 3, 10), (torch.randn(2, 3, 20), torch.randn(2, 3, 20)), backend=backend)
    assert y.shape == (5, 3, 20)
    assert h.shape == c.shape == (2, 3, 20)

    cell, x = LSTMCell(10, 20), torch.randn(2, 3, 10)
    state, outputs = (torch.randn(3, 20), torch.randn(3, 20)), []
    for x_t in x:
        state = cell(x_t, state, backend=backend)
        outputs.append(state[0])
    assert torch.stack(outputs).shape == (2, 3, 20)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_C1_options_are_torchs(kind):
    layer, cell = {"RNN": (RNN, RNNCell), "GRU": (GRU, GRUCell), "LSTM": (LSTM, LSTMCell)}[kind]
    default, plain_cell = layer(10, 20), cell(10, 20)
    assert (default.input_size, default.hidden_size, default.num_layers) == (10, 20, 1)
    assert (default.bias, default.batch_first, default.dropout) == (True, False, 0.0)
    assert (default.bidirectional, default.proj_size) == (False, 0)
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    assert default.bias_ih_l0.shape == default.bias_hh_l0.shape == (gates * 20,)  # two vectors
    assert plain_cell.bias_ih.shape == plain_cell.bias_hh.shape == (gates * 20,)
    x = torch.randn(3, 5, 10)
    for backend in BACKENDS:
        both = layer(10, 20, 2, bias=False, batch_first=True, dropout=0.5, bidirectional=True)
        assert both(x, backend=backend)[0].shape == (3, 5, 40)
        assert not any("bias" in name for name in both.state_dict())
    if kind == "LSTM":
        y, (h, c) = LSTM(10, 20, proj_size=7)(x.transpose(0, 1), backend="reference")
        assert (y.shape, h.shape, c.shape) == ((5, 3, 7), (1, 3, 7), (1, 3, 20))


@pytest.mark.parametrize(
    ("layer", "cell"), [(RNN(4, 6), RNNCell(4, 6)), (GRU(4, 6), GRUCell(4, 6)), (LSTM(4, 6), LSTMCell(4, 6))]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_C1_the_sequence_form_is_the_cell_form_looped(layer, cell, backend):
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    x = torch.randn(5, 3, 4)
    y, _ = layer(x)
    state = None  # y_t = F(x_t, h_{t-1}), from zero
    for x_t, y_t in zip(x, y, strict=True):
        state = cell(x_t, state, backend=backend)
        torch.testing.assert_close(state[0] if isinstance(state, tuple) else state, y_t, atol=1e-6, rtol=1e-5)


def test_C1_the_initial_state_is_zero_when_not_given():
    x = torch.randn(5, 3, 4)
    zero = torch.zeros(1, 3, 6)
    for layer, state in ((RNN(4, 6), zero), (GRU(4, 6), zero), (LSTM(4, 6), (zero, zero))):
        torch.testing.assert_close(layer(x, backend="reference"), layer(x, state, backend="torch"))


def gradient_by_distance(net, time=40, width=16):
    """Norm of the gradient of the last output by the input that lies k steps back, for k = 0 … time - 1."""
    x = torch.randn(time, 1, width, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(net(x, backend="reference")[0][-1].sum(), x)
    return gradient.flatten(1).norm(dim=1).flip(0)


def recurrent_net(cls, radius=None, width=16):
    """A net in double precision; `radius` makes every recurrent matrix that many times an orthogonal one."""
    net = cls(width, width, dtype=torch.float64)
    if radius is not None:
        with torch.no_grad():
            net.weight_hh_l0.copy_(radius * nn.init.orthogonal_(torch.empty(width, width)))
    return net


def test_C3_gradients_vanish():
    for cls in (RNN, LSTM):
        norms = gradient_by_distance(recurrent_net(cls))
        assert norms[39] < 1e-4 * norms[0]
        assert norms[39] < norms[20] < norms[10] < norms[0]
    # tanh' <= 1, so with a recurrent matrix of norm r the gradient shrinks at least like r^k
    net = recurrent_net(RNN, radius=0.5)
    norms = gradient_by_distance(net)
    bound = net.weight_ih_l0.norm() * 4 * 0.5 ** torch.arange(40, dtype=torch.float64)
    assert (norms <= bound).all()


def test_C3_gradients_explode():
    # In the linear range of ReLU (a large positive bias) the gradient grows exactly like r^k.
    net = RNN(16, 16, nonlinearity="relu", dtype=torch.float64)
    with torch.no_grad():
        net.weight_hh_l0.copy_(1.5 * torch.eye(16))
        net.bias_ih_l0.fill_(100.0)
    norms = gradient_by_distance(net)
    torch.testing.assert_close(norms[1:] / norms[:-1], torch.full((39,), 1.5, dtype=torch.float64))
    assert norms[39] > 1e6 * norms[0]


def test_C3_an_open_forget_gate_holds_the_gradient():
    net = recurrent_net(LSTM)
    with torch.no_grad():
        net.bias_ih_l0.zero_()[16:32] = 20.0  # gates i, f, g, o of 16 units: the forget gate stands open
        net.weight_hh_l0.zero_()
    norms = gradient_by_distance(net)
    assert norms.max() / norms.min() < 100
    plain = gradient_by_distance(recurrent_net(RNN))
    assert norms[39] / norms[0] > 1e3 * plain[39] / plain[0]


def test_C3_attention_does_not_depend_on_the_distance():
    x = torch.randn(40, 16, dtype=torch.float64)
    order = torch.randperm(39)

    def gradient(x):
        x = x.clone().requires_grad_()
        last = regard.attend(x[-1:], x, x)
        return torch.autograd.grad(last.sum(), x)[0]

    # whoever stands anywhere before the query gets the same gradient at any distance
    moved = torch.cat([x[:-1][order], x[-1:]])
    torch.testing.assert_close(gradient(moved)[:-1], gradient(x)[:-1][order])


def graph_depth(y):
    """Length of the longest chain of operations that the result waits for."""
    depth, stack = {}, [(y.grad_fn, False)]
    while stack:
        node, ready = stack.pop()
        before = [function for function, _ in node.next_functions if function is not None]
        if ready:
            depth[node] = 1 + max((depth[function] for function in before), default=0)
        elif node not in depth:
            stack.append((node, True))
            stack.extend((function, False) for function in before)
    return depth[y.grad_fn]


def test_C3_sequential_computation():
    def depth(run, time):
        return graph_depth(run(torch.randn(time, 1, 8, requires_grad=True)))

    net = RNN(8, 8)
    recurrent = [depth(lambda x: net(x, backend="reference")[0], time) for time in (10, 20, 30)]
    assert recurrent[2] - recurrent[1] == recurrent[1] - recurrent[0] >= 10  # a step waits for the step before

    def attention(x):
        x = x.transpose(0, 1)
        return regard.attend(x, x, x)

    assert len({depth(attention, time) for time in (10, 20, 30)}) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_C3_no_view_of_later_steps_unless_bidirectional(backend):
    def seen(net):
        x = torch.randn(6, 1, 4, requires_grad=True)
        y, _ = net(x, backend=backend)
        rows = [torch.autograd.grad(y_t.sum(), x, retain_graph=True)[0].flatten(1).norm(dim=1) > 0 for y_t in y]
        return torch.stack(rows)

    for cls in (RNN, GRU, LSTM):
        assert torch.equal(seen(cls(4, 5)), torch.ones(6, 6).tril().bool())
        assert seen(cls(4, 5, bidirectional=True)).all()


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
def test_C3_any_length_with_the_same_parameters_into_one_vector(cls):
    net = cls(4, 6)
    for time in (1, 7, 50):
        y, state = net(torch.randn(time, 1, 4))
        h = state[0] if isinstance(state, tuple) else state
        assert y.shape == (time, 1, 6)
        assert h.shape == (1, 1, 6)  # whatever the length, this is all that is handed on (C4)


@pytest.mark.parametrize("cls", [RNN, GRU, LSTM])
def test_C3_trainable_by_backpropagation(cls):
    """The net learns to repeat the input of the step before."""
    net, read = cls(2, 16), nn.Linear(16, 2)
    optimizer = torch.optim.Adam([*net.parameters(), *read.parameters()], lr=0.02)
    x = torch.randn(12, 16, 2)
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(read(net(x, backend="torch")[0])[1:], x[:-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
