"""The language models: how they are put together, against torch's layers.

B batch   m tokens   V vocabulary
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import RecurrentLM, RecurrentLMConfig, TransformerLM, TransformerLMConfig

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
STACK: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "dropout": 0.0}


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_lm_is_table_torchs_net_and_a_linear_layer(cell: str, layers: int, target: Tensor) -> None:
    model = RecurrentLM(RecurrentLMConfig(vocabulary=13, cell=cell, layers=layers, embedding=6, hidden=8)).eval()
    net = TORCH[cell](6, 8, num_layers=layers, batch_first=True)
    net.load_state_dict(model.rnn.state_dict())
    hidden, _ = net(model.embedding.weight[target])
    assert model.output is not None
    want = hidden @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(target), want)


@pytest.mark.parametrize("cell", TORCH)
def test_the_first_state_is_zero(cell: str) -> None:
    model = RecurrentLM(RecurrentLMConfig(vocabulary=13, cell=cell, layers=3, embedding=6, hidden=8))
    hidden = model.start(5).hidden
    parts = hidden if cell == "lstm" else (hidden,)
    assert all(part.shape == (3, 5, 8) and not part.any() for part in parts)
    assert len(parts) == (2 if cell == "lstm" else 1)


def test_a_recurrent_state_is_of_one_size() -> None:
    """The whole text so far in one vector a layer, whatever the capacity."""
    model = RecurrentLM(RecurrentLMConfig(vocabulary=13, embedding=6, hidden=8)).eval()
    state = model.start(1, capacity=2)
    for length in (1, 50):
        model.decode(torch.ones(1, length, dtype=torch.long), state=state)
        assert state.hidden.shape == (1, 1, 8)


def test_tied_output(target: Tensor) -> None:
    recurrent = RecurrentLM(RecurrentLMConfig(vocabulary=13, embedding=8, hidden=8, tie_output=True)).eval()
    stack = TransformerLM(TransformerLMConfig(vocabulary=13, **STACK)).eval()
    for model, table in ((recurrent, recurrent.embedding.weight), (stack, stack.input.embedding.weight)):
        assert model.output is None
        torch.testing.assert_close(model(target), model.decode(target) @ table.T)
    assert TransformerLM(TransformerLMConfig(vocabulary=13, tie_output=False, **STACK)).output is not None


def test_dropout_between_layers_only() -> None:
    one = RecurrentLM(RecurrentLMConfig(vocabulary=13, layers=1, dropout=0.5, embedding=6, hidden=8))
    two = RecurrentLM(RecurrentLMConfig(vocabulary=13, layers=2, dropout=0.5, embedding=6, hidden=8))
    assert (one.rnn.dropout, two.rnn.dropout) == (0.0, 0.5)
    assert one.dropout.p == 0.5


def test_transformer_lm_has_no_cross_attention() -> None:
    model = TransformerLM(TransformerLMConfig(vocabulary=13, **STACK))
    assert len(model.decoder.blocks) == 2
    assert all(block.cross_attention is None for block in model.decoder.blocks)


def test_t5_looks_one_way_only() -> None:
    model = TransformerLM(TransformerLMConfig(vocabulary=13, position="t5", **STACK))
    assert not model.decoder.blocks[0].self_attention.position.bidirectional
