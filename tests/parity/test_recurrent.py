"""Our recurrent layers and cells against torch's: outputs, states and every gradient, with every option of C1."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.cells import GRUCell, LSTMCell, RNNCell
from regard.layers.recurrent import GRU, LSTM, RNN

from ..repeats import some

LAYERS = {"RNN": (RNN, nn.RNN), "GRU": (GRU, nn.GRU), "LSTM": (LSTM, nn.LSTM)}
CELLS = {"RNN": (RNNCell, nn.RNNCell), "GRU": (GRUCell, nn.GRUCell), "LSTM": (LSTMCell, nn.LSTMCell)}
OWN_OPTIONS = {
    "RNN": [{"nonlinearity": "tanh"}, {"nonlinearity": "relu"}],
    "GRU": [{}],
    "LSTM": [{"proj_size": 0}, {"proj_size": 2}],
}
SHARED_OPTIONS = [
    dict(zip(("num_layers", "bias", "batch_first", "bidirectional"), values, strict=True))
    for values in product((1, 3), (True, False), (True, False), (True, False))
]


def pair(kind, table, *sizes, dtype=torch.float64, **options):
    """Ours and torch's with the same weights, ours taking torch's state dict."""
    ours, theirs = (cls(*sizes, dtype=dtype, **options) for cls in table[kind])
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


def initial_state(layer, batch, dtype=torch.float64):
    """A random initial state of the layer, for `batch` sequences, or for one without a batch dimension (None)."""
    rows = layer.num_layers * (2 if layer.bidirectional else 1)
    middle = () if batch is None else (batch,)
    h = torch.randn(rows, *middle, layer.proj_size or layer.hidden_size, dtype=dtype)
    return (h, torch.randn(rows, *middle, layer.hidden_size, dtype=dtype)) if layer.mode == "LSTM" else h


def flat(result):
    """All tensors of a nested result, in order."""
    return [result] if isinstance(result, torch.Tensor) else [t for part in result for t in flat(part)]


def results_and_gradients(module, call, x, state):
    """What the call gives, and the gradients of a random-looking sum of all of it by x, state and parameters."""
    x = x.clone().requires_grad_()
    leaves = [] if state is None else [part.clone().requires_grad_() for part in flat(state)]
    given_state = None if state is None else (leaves[0] if len(leaves) == 1 else tuple(leaves))
    results = flat(call(module, x, given_state))
    loss = sum((r * torch.arange(1, r.numel() + 1, dtype=r.dtype).view_as(r).cos()).sum() for r in results)
    return results, torch.autograd.grad(loss, [x, *leaves, *module.parameters()])


def assert_same(ours, theirs, call_ours, call_theirs, x, state, tolerance=1e-10):
    ours_results, ours_gradients = results_and_gradients(ours, call_ours, x, state)
    their_results, their_gradients = results_and_gradients(theirs, call_theirs, x, state)
    assert len(ours_gradients) == 1 + len(flat(state if state is not None else ())) + len(list(theirs.parameters()))
    torch.testing.assert_close(ours_results, their_results, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(list(ours_gradients), list(their_gradients), atol=tolerance, rtol=tolerance)


def plain(module, x, state):
    return module(x, state)


def written_out(module, x, state):
    return module(x, state, backend="reference")


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("shared", some(SHARED_OPTIONS, 6), ids=lambda o: "-".join(map(str, o.values())))
def test_every_option(kind, shared):
    for own, batch, with_state in product(OWN_OPTIONS[kind], (None, 3), (False, True)):
        ours, theirs = pair(kind, LAYERS, 4, 5, **shared, **own)
        x = torch.randn(*((6, 4) if batch is None else (batch, 6, 4) if shared["batch_first"] else (6, batch, 4)))
        state = initial_state(theirs, batch) if with_state else None
        assert_same(ours, theirs, written_out, plain, x.double(), state)
        assert_same(ours, theirs, plain, plain, x.double(), state)


@given(
    kind=st.sampled_from(list(LAYERS)),
    time=st.integers(1, 9),
    batch=st.integers(1, 4),
    width=st.integers(1, 6),
    hidden=st.integers(2, 6),
    layers=st.integers(1, 3),
    bidirectional=st.booleans(),
)
def test_any_shape_in_single_precision(kind, time, batch, width, hidden, layers, bidirectional):
    options = {"num_layers": layers, "bidirectional": bidirectional, "dtype": torch.float32}
    ours, theirs = pair(kind, LAYERS, width, hidden, **options)
    x = torch.randn(time, batch, width)
    with torch.no_grad():
        got, expected = ours(x, backend="reference"), theirs(x)
    torch.testing.assert_close(flat(got), flat(expected), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
@pytest.mark.parametrize("with_state", [True, False])
def test_lengths_equal_packing_by_hand(kind, batch_first, backend, with_state):
    options = {"num_layers": 2, "bidirectional": True, "batch_first": batch_first}
    own = {"proj_size": 3} if kind == "LSTM" else {}
    ours, theirs = pair(kind, LAYERS, 4, 5, **options, **own)
    lengths = torch.tensor([2, 7, 1, 5])  # the longest is shorter than the padded time, 8

    def packed(module, x, state):
        x = pack_padded_sequence(x, lengths, batch_first=batch_first, enforce_sorted=False)
        y, last = module(x, state)
        return pad_packed_sequence(y, batch_first=batch_first, total_length=8)[0], last

    def with_lengths(module, x, state):
        return module(x, state, lengths=lengths, backend=backend)

    x = torch.randn(*((4, 8, 4) if batch_first else (8, 4, 4)), dtype=torch.float64)
    state = initial_state(theirs, 4) if with_state else None
    assert_same(ours, theirs, with_lengths, packed, x, state)


@pytest.mark.parametrize("kind", LAYERS)
def test_dropout_draws_the_same_numbers(kind):
    ours, theirs = pair(kind, LAYERS, 4, 5, num_layers=3, dropout=0.4, bidirectional=True)
    x = torch.randn(6, 3, 4, dtype=torch.float64)

    def seeded(call):
        def run(module, x, state):
            torch.manual_seed(7)
            return call(module, x, state)

        return run

    assert_same(ours, theirs, seeded(written_out), seeded(plain), x, None)
    assert_same(ours.eval(), theirs.eval(), written_out, plain, x, None)


@pytest.mark.parametrize("kind", LAYERS)
def test_state_dicts_go_both_ways(kind):
    ours, theirs = (cls(4, 5, 2, bidirectional=True) for cls in LAYERS[kind])
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = torch.randn(6, 3, 4)
    assert not torch.equal(ours(x)[0], theirs(x)[0])
    theirs.load_state_dict(ours.state_dict(), strict=True)
    torch.testing.assert_close(ours(x, backend="reference")[0], theirs(x)[0], atol=1e-6, rtol=1e-6)

    our_cell, their_cell = (cls(4, 5) for cls in CELLS[kind])
    their_cell.load_state_dict(our_cell.state_dict(), strict=True)
    torch.testing.assert_close(flat(our_cell(x[0], backend="reference")), flat(their_cell(x[0])), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("call", [plain, written_out])
def test_cells(kind, bias, call):
    for own, batch, with_state in product(OWN_OPTIONS[kind], ((), (3,)), (False, True)):
        options = own if kind == "RNN" else {}
        ours, theirs = pair(kind, CELLS, 4, 5, bias=bias, **options)
        x = torch.randn(*batch, 4, dtype=torch.float64)
        h, c = torch.randn(2, *batch, 5, dtype=torch.float64)
        state = None if not with_state else (h, c) if kind == "LSTM" else h
        assert_same(ours, theirs, call, plain, x, state)
        single, their_single = pair(kind, CELLS, 4, 5, bias=bias, dtype=torch.float32, **options)
        torch.testing.assert_close(
            flat(call(single, x.float(), None)), flat(their_single(x.float())), atol=1e-6, rtol=1e-6
        )
