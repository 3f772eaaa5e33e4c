"""Recurrent layers: padding against single sentences, the choice of backend, compiling, and clear errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from regard.layers import recurrent
from regard.layers.cells import GRUCell, LSTMCell, RNNCell, Weights, gru_step, lstm_step, rnn_step
from regard.layers.recurrent import GRU, LSTM, RNN
from regard.layers.recurrent_checks import kernel_obstacle

from ..repeats import by_default

LAYERS = (RNN, GRU, LSTM)
CELLS = (RNNCell, GRUCell, LSTMCell)


def last_h(state):
    return state[0] if isinstance(state, tuple) else state


class TestSteps:
    """The step functions against numbers worked out by hand (one input, one unit)."""

    def one(self, *numbers):
        return torch.tensor(numbers, dtype=torch.float64)

    def test_rnn(self):
        weights = Weights(self.one(2.0)[None], self.one(3.0)[None], self.one(0.5), self.one(0.25))
        x, h = self.one(0.1), self.one(-0.2)
        # 2 * 0.1 + 0.5 + 3 * -0.2 + 0.25 = 0.35
        torch.testing.assert_close(rnn_step(x, h, weights), torch.tanh(self.one(0.35)))
        torch.testing.assert_close(rnn_step(x, h, weights, "relu"), self.one(0.35))

    def test_gru_gates_are_reset_update_new(self):
        shut, open_ = -1e3, 1e3
        h = self.one(0.7)
        for z, expected in ((open_, 0.7), (shut, torch.tanh(torch.tensor(0.4 + 0.5)).item())):
            weights = Weights(torch.zeros(3, 1).double(), torch.zeros(3, 1).double())
            weights = weights._replace(b_ih=self.one(open_, z, 0.4), b_hh=self.one(0.0, 0.0, 0.5))
            torch.testing.assert_close(gru_step(self.one(0.0), h, weights), self.one(expected), atol=1e-7, rtol=0)
        # a shut reset gate silences what comes from the state, its bias included
        weights = weights._replace(b_ih=self.one(shut, shut, 0.4))
        torch.testing.assert_close(gru_step(self.one(0.0), h, weights), torch.tanh(self.one(0.4)))

    def test_lstm_gates_are_input_forget_new_output(self):
        shut, open_ = -1e3, 1e3
        h, c = self.one(0.0), self.one(0.7)
        content = torch.tanh(torch.tensor(0.4)).item()
        for i, f, o, next_c in (
            (shut, open_, open_, 0.7),
            (open_, shut, open_, content),
            (open_, open_, open_, 0.7 + content),
            (open_, open_, shut, 0.7 + content),
        ):
            weights = Weights(torch.zeros(4, 1).double(), torch.zeros(4, 1).double(), self.one(i, f, 0.4, o))
            got_h, got_c = lstm_step(self.one(0.0), h, c, weights)
            torch.testing.assert_close(got_c, self.one(next_c), atol=1e-7, rtol=0)
            torch.testing.assert_close(got_h, torch.tanh(got_c) * (o == open_))


@given(
    cls=st.sampled_from(LAYERS),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    spare=st.integers(0, 2),
    layers=st.integers(1, 2),
    bidirectional=st.booleans(),
    backend=st.sampled_from(["auto", "torch", "reference"]),
)
def test_batched_with_padding_equals_single(cls, lengths, spare, layers, bidirectional, backend):
    layer = cls(3, 4, layers, batch_first=True, bidirectional=bidirectional, dtype=torch.float64)
    sentences = [torch.randn(length, 3, dtype=torch.float64) for length in lengths]
    x = torch.full((len(lengths), max(lengths) + spare, 3), float("nan"), dtype=torch.float64)
    for row, sentence in zip(x, sentences, strict=True):
        row[: len(sentence)] = sentence

    y, state = layer(x, lengths=torch.tensor(lengths), backend=backend)
    y.sum().backward()
    got = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()

    assert y.shape[:2] == x.shape[:2]
    for index, sentence in enumerate(sentences):
        alone, end = layer(sentence, backend="torch")  # no batch dimension
        torch.testing.assert_close(y[index, : len(sentence)], alone)
        assert y[index, len(sentence) :].eq(0).all()
        torch.testing.assert_close(last_h(state)[:, index], last_h(end))
        alone.sum().backward()
    # NaN in the padding reaches no gradient
    torch.testing.assert_close(got, [p.grad for p in layer.parameters()])


def test_dropout_is_between_layers_only():
    layer = LSTM(3, 4, 2, dropout=0.999999)
    x = torch.randn(5, 2, 3)
    y, _ = layer(x, backend="reference")
    second = nn.LSTM(4, 4)
    second.load_state_dict({k.replace("_l1", "_l0"): v for k, v in layer.state_dict().items() if "_l1" in k})
    # the second layer sees nothing but zeros, and what it says is not dropped
    torch.testing.assert_close(y, second(torch.zeros(5, 2, 4))[0])


class TestBackend:
    def test_auto_uses_torchs_kernels_where_they_apply(self, monkeypatch):
        def refuse(*_):
            raise AssertionError("the loop ran")

        monkeypatch.setattr(recurrent, "run_loop", refuse)
        x = torch.randn(5, 2, 3)
        for cls in LAYERS:
            cls(3, 4)(x)
            cls(3, 4)(x, lengths=torch.tensor([5, 1]))
            with pytest.raises(AssertionError, match="the loop ran"):
                cls(3, 4)(x, backend="reference")

    @pytest.mark.parametrize("cls", LAYERS)
    def test_empty_batch(self, cls):
        layer, x, none = cls(3, 4), torch.randn(5, 0, 3), torch.zeros(0, dtype=torch.long)
        for backend in ("auto", "reference"):
            y, state = layer(x, lengths=none, backend=backend)
            assert y.shape == (5, 0, 4) and last_h(state).shape == (1, 0, 4)
        with pytest.raises(ValueError, match="backend='torch' does not fit: torch does not pack an empty batch"):
            layer(x, lengths=none, backend="torch")

    def test_obstacles_of_other_devices(self):
        # No such device here: the rule is asked with a stand-in for x.
        cuda, mps = (SimpleNamespace(device=torch.device(name)) for name in ("cuda", "mps"))
        layer, projected = LSTM(3, 4), LSTM(3, 4, proj_size=2)
        assert kernel_obstacle(layer, cuda, None) is None
        assert "no gradient in eval mode" in kernel_obstacle(layer.eval(), cuda, None)
        with torch.no_grad():
            assert kernel_obstacle(layer, cuda, None) is None
        assert kernel_obstacle(layer, mps, None) is None
        assert "no LSTM projection on MPS" in kernel_obstacle(projected, mps, None)
        assert kernel_obstacle(projected, cuda, None) is None

    @pytest.mark.parametrize("cls", LAYERS)
    def test_reference_has_second_derivatives_and_vmap(self, cls):
        layer = cls(2, 3, dtype=torch.float64)
        x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(lambda x: layer(x, backend="reference")[0], x)
        xs = torch.randn(3, 4, 2, 2, dtype=torch.float64)
        mapped = torch.func.vmap(lambda x: layer(x, backend="reference")[0])(xs)
        torch.testing.assert_close(mapped, torch.stack([layer(x)[0] for x in xs]))

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"unknown backend 'fast' \(known: auto, torch, reference"):
            LSTM(3, 4)(torch.randn(5, 2, 3), backend="fast")
        with pytest.raises(ValueError, match=r"unknown backend 'fast' \(known: auto, torch, reference"):
            GRUCell(3, 4)(torch.randn(2, 3), backend="fast")


class TestCompile:
    @pytest.mark.parametrize("cls", by_default({GRUCell}, CELLS))
    def test_a_cell_is_one_graph(self, cls):
        cell, theirs = cls(3, 4), getattr(nn, cls.__name__)(3, 4)
        theirs.load_state_dict(cell.state_dict())
        step = torch.compile(cell, backend="eager", fullgraph=True)
        state = expected = None
        for _ in range(3):
            x = torch.randn(2, 3)
            state, expected = step(x, state), theirs(x, expected)
            torch.testing.assert_close(state, expected)

    @pytest.mark.parametrize("cls", by_default({LSTM}, LAYERS))
    def test_a_layer_compiles(self, cls):
        layer = cls(3, 4, batch_first=True)
        compiled = torch.compile(layer, backend="eager")
        for time in (4, 6):
            x, lengths = torch.randn(2, time, 3), torch.tensor([time, 2])
            torch.testing.assert_close(compiled(x), layer(x))
            torch.testing.assert_close(compiled(x, lengths=lengths), layer(x, lengths=lengths))

    def test_the_compiled_cell_runs_the_written_out_step(self):
        graphs = []

        def keep(graph, _):
            graphs.append(graph)
            return graph

        torch.compile(LSTMCell(3, 4), backend=keep, fullgraph=True)(torch.randn(2, 3))
        targets = " ".join(str(node.target) for node in graphs[0].graph.nodes)
        assert "sigmoid" in targets and "lstm_cell" not in targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_autocast_mixes_dtypes(dtype, backend):
    for cls, cell_cls in zip(LAYERS, CELLS, strict=True):
        layer, cell, x = cls(3, 4), cell_cls(3, 4), torch.randn(5, 2, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y, _ = layer(x.to(dtype), backend=backend)
            h = last_h(cell(x[0].to(dtype), backend=backend))
        torch.testing.assert_close(y.float(), layer(x)[0], atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(h.float(), last_h(cell(x[0])), atol=2e-2, rtol=2e-2)


X = torch.randn(5, 2, 3)


@pytest.mark.parametrize(
    ("options", "x", "arguments", "error", "message"),
    [
        ({}, torch.randn(5, 2, 7), {}, ValueError, r"x must be \(time, batch, 3\) or \(time, 3\).*got \(5, 2, 7\)"),
        ({"batch_first": True}, torch.randn(3), {}, ValueError, r"x must be \(batch, time, 3\).*got \(3,\)"),
        ({}, torch.randn(0, 2, 3), {}, ValueError, r"x must have at least one time step, got \(0, 2, 3\)"),
        ({}, X.double(), {}, TypeError, r"x must have the weights' dtype torch.float32, got torch.float64"),
        ({}, X.to("meta"), {}, ValueError, r"x must be on the weights' device cpu, got meta"),
        ({}, pack_sequence([X[:, 0]]), {}, TypeError, r"x must be a tensor.*lengths=.*got PackedSequence"),
        ({}, X, {"lengths": torch.tensor([0, 5])}, ValueError, r"lengths must lie in 1\.\.5.*got 0\.\.5"),
        ({}, X, {"lengths": torch.tensor([6, 5])}, ValueError, r"lengths must lie in 1\.\.5.*got 5\.\.6"),
        ({}, X, {"lengths": torch.tensor([5])}, ValueError, r"lengths must be \(2,\).*got \(1,\)"),
        ({}, X, {"lengths": torch.tensor([5.0, 1.0])}, TypeError, r"lengths must be whole numbers.*got torch.float32"),
        ({}, X[:, 0], {"lengths": torch.tensor([5])}, ValueError, r"lengths belong to a batch; x is one sequence"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("cls", LAYERS)
def test_wrong_input(cls, backend, options, x, arguments, error, message):
    with pytest.raises(error, match=message):
        cls(3, 4, **options)(x, **arguments, backend=backend)


def test_wrong_state():
    with pytest.raises(ValueError, match=r"state must be \(1, 2, 4\) for x \(5, 2, 3\), got \(2, 2, 4\)"):
        GRU(3, 4)(X, torch.zeros(2, 2, 4))
    with pytest.raises(ValueError, match=r"state must be \(2, 4\) for x \(5, 3\), got \(2, 1, 4\)"):
        RNN(3, 4, 2)(X[:, 0], torch.zeros(2, 1, 4))
    with pytest.raises(TypeError, match=r"state must have the weights' dtype torch.float32, got torch.float64"):
        GRU(3, 4)(X, torch.zeros(1, 2, 4).double())
    h, c = torch.zeros(1, 2, 2), torch.zeros(1, 2, 4)
    with pytest.raises(ValueError, match=r"state must be \(1, 2, 2\).*got \(1, 2, 4\)"):
        LSTM(3, 4, proj_size=2)(X, (c, h))
    for layer, x in ((LSTM(3, 4), X), (LSTMCell(3, 4), X[0])):
        with pytest.raises(TypeError, match=r"state of an LSTM must be the pair \(h, c\), got Tensor"):
            layer(x, torch.zeros(2, 2, 4))


@pytest.mark.parametrize("cls", CELLS)
def test_wrong_cell_input(cls):
    cell = cls(3, 4)
    with pytest.raises(ValueError, match=r"x must be \(batch, 3\) or \(3,\).*got \(2, 5\)"):
        cell(torch.randn(2, 5))
    with pytest.raises(TypeError, match=r"x must have the weights' dtype torch.float32, got torch.float64"):
        cell(torch.randn(2, 3).double())
    state = torch.zeros(1, 4)
    with pytest.raises(ValueError, match=r"state must be \(2, 4\) for x \(2, 3\), got \(1, 4\)"):
        cell(torch.randn(2, 3), (state, state) if cls is LSTMCell else state)
    state = torch.zeros(2, 4, dtype=torch.float64)
    with pytest.raises(TypeError, match=r"state must have the weights' dtype torch.float32, got torch.float64"):
        cell(torch.randn(2, 3), (state, state) if cls is LSTMCell else state)
