"""The recurrent translator: its parts against torch's layers. The papers' equations: tests/lectures.

B batch   n source tokens   m target tokens   h_j source states   s_i decoder states
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import RecurrentTranslator, RecurrentTranslatorConfig, make_model
from regard.models.decoding_state import Encoded

TORCH: dict[str, Any] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
TINY: dict[str, Any] = {"source_vocabulary": 11, "target_vocabulary": 13, "embedding": 6, "hidden": 8}


def tiny(**settings: Any) -> RecurrentTranslator:
    return RecurrentTranslator(RecurrentTranslatorConfig(**{**TINY, **settings})).eval()


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_encoder_is_torchs_net(cell: str, bidirectional: bool, source: Tensor) -> None:
    """States of the real tokens, zeros for padding, and the last state of each layer, directions side by side."""
    model = tiny(cell=cell, bidirectional=bidirectional, layers=2, encoder_hidden=5)
    directions = 1 + bidirectional
    net = TORCH[cell](6, 5, num_layers=2, batch_first=True, bidirectional=bidirectional)
    net.load_state_dict(model.encoder.rnn.state_dict())
    encoded = model.encode(source)
    finals = encoded.final if cell == "lstm" else (encoded.final,)
    for row, n in enumerate((4, 6, 3)):
        states, last = net(model.encoder.embedding.weight[source[row : row + 1, :n]])
        torch.testing.assert_close(encoded.states[row, :n], states[0])
        assert not encoded.states[row, n:].any()
        for got, want in zip(finals, last if cell == "lstm" else (last,), strict=True):
            assert got.shape == (2, 3, directions * 5)
            by_layer = want.view(2, directions, 5).flatten(1)  # torch orders by layer, then direction
            torch.testing.assert_close(got[:, row], by_layer)


def test_sutskever_hands_the_last_state_over_as_it_is(source: Tensor) -> None:
    model = tiny(cell="lstm", attention="none", bidirectional=False, layers=2)
    assert model.decoder.bridge is None
    encoded = model.encode(source)
    assert model.start(encoded).hidden is encoded.final
    assert model.decoder.cross_attention is None and model.decoder.readout is None


@pytest.mark.parametrize("settings", [{}, {"bidirectional": False, "encoder_hidden": 5}])
def test_the_bridge_fits_other_widths_and_two_directions(settings: dict[str, Any], source: Tensor) -> None:
    model = tiny(cell="lstm", **settings)
    encoded = model.encode(source)
    bridge = model.decoder.bridge
    for got, last in zip(model.start(encoded).hidden, encoded.final, strict=True):
        torch.testing.assert_close(got, torch.tanh(last @ bridge.weight.T + bridge.bias))


def test_without_attention_only_the_last_state_counts(source: Tensor, target: Tensor) -> None:
    model = tiny(attention="none")
    encoded = model.encode(source)
    other = Encoded(torch.randn_like(encoded.states), encoded.keep, encoded.final)
    assert torch.equal(model.decode(target, encoded), model.decode(target, other))


@pytest.mark.parametrize("style", ["bahdanau", "luong"])
def test_with_attention_the_states_count(style: str, source: Tensor, target: Tensor) -> None:
    model = tiny(style=style)
    encoded = model.encode(source)
    hidden = model.decode(target, encoded)
    states = encoded.states + encoded.keep[..., None]
    assert not torch.allclose(hidden, model.decode(target, Encoded(states, encoded.keep, encoded.final)))
    # padding does not
    states = encoded.states + ~encoded.keep[..., None]
    torch.testing.assert_close(hidden, model.decode(target, Encoded(states, encoded.keep, encoded.final)))


def test_feeding_starts_with_zeros_and_moves_on(source: Tensor, target: Tensor) -> None:
    model = tiny(style="luong", attention="dot", input_feeding=True)
    state = model.start(model.encode(source))
    assert state.feed.shape == (3, 1, 8) and not state.feed.any()
    hidden = model.decode(target[:, :1], state=state)
    assert torch.equal(state.feed, hidden)  # the attentional state; no dropout in eval
    assert tiny(style="luong").start(model.encode(source)).feed is None


def test_the_source_is_projected_once(source: Tensor, target: Tensor) -> None:
    model = tiny()
    calls: list[int] = []
    model.decoder.cross_attention.score.key.register_forward_hook(lambda *_: calls.append(1))
    model(source, target)
    assert calls == [1]


def test_tied_output(source: Tensor, target: Tensor) -> None:
    model = tiny(embedding=8, tie_output=True)
    assert model.output is None
    hidden = model.decode(target, model.encode(source))
    torch.testing.assert_close(model(source, target), hidden @ model.decoder.embedding.weight.T)


def test_errors(source: Tensor, target: Tensor) -> None:
    model = tiny()
    with pytest.raises(ValueError, match=r"target must be \(3, length\) with at least one word, got \(3, 0\)"):
        model(source, target[:, :0])
    with pytest.raises(ValueError, match=r"target must be \(3, length\) .* got \(2, 5\)"):
        model(source, target[:2])
    with pytest.raises(ValueError, match="needs the encoder's last state, and this source has none"):
        model.decode(target, model.encode(source)._replace(final=None))
    source[1] = 0
    with pytest.raises(ValueError, match="each source must hold a token"):
        model(source, target)  # nothing to read


def test_empty_batch(source: Tensor, target: Tensor) -> None:
    model: Any = make_model(RecurrentTranslatorConfig(**TINY))
    assert model(source[:0], target[:0]).shape == (0, 5, 13)


@pytest.mark.parametrize("source", [[[0, 0, 5]], [[5, 0, 6]], [[0, 0, 0]]])
def test_padding_stands_at_the_end_of_a_source(source: list[list[int]]) -> None:
    model = make_model(RecurrentTranslatorConfig(source_vocabulary=9, target_vocabulary=9, embedding=4, hidden=4))
    with pytest.raises(ValueError, match=r"each source must hold a token, and its padding .* at the end"):
        model.encode(torch.tensor(source))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA")
@pytest.mark.parametrize("cell", TORCH)
def test_training_waits_for_nothing_and_is_the_same_cuda(cell: str, source: Tensor, target: Tensor) -> None:
    """Where the lengths are known to the GPU only: states and gradients are those of torch's kernels on a CPU.

    The decoder is cuDNN's, which by default multiplies in TF32, with 10 bits: gradients are then off by up to 1e-3.
    """
    models = [tiny(cell=cell, dropout=0.0).train() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    here, there = models[0], models[1].to("cuda")
    given = source.to("cuda"), target.to("cuda")
    wanted = torch.autograd.grad(here(source, target).square().sum(), [*here.parameters()])
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        there(*given)  # kernels are loaded
        torch.cuda.set_sync_debug_mode("error")
        try:
            found = torch.autograd.grad(there(*given).square().sum(), [*there.parameters()])
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close([one.cpu() for one in found], [*wanted], rtol=1e-3, atol=1e-4)
