"""C2, C4: the recurrent language model over letters, and the encoder-decoder without attention."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard import RecurrentLM, RecurrentLMConfig, RecurrentTranslator, RecurrentTranslatorConfig
from regard.models.decoding_state import Encoded

CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def letters(text: str) -> torch.Tensor:
    return torch.tensor([[ord(letter) - ord("a") for letter in text]])


def cell_of(rnn: nn.Module, kind: str, inputs: int, hidden: int) -> nn.Module:
    """torch's cell with the weights of a layer of ours."""
    cell = CELLS[kind](inputs, hidden)
    cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in rnn.state_dict().items()})
    return cell


@pytest.mark.parametrize("kind", CELLS)
def test_C2_softmax_over_the_next_letter_at_each_step(kind: str) -> None:
    """Many to many with teacher forcing: step t reads the true letter t and predicts letter t + 1."""
    model = RecurrentLM(RecurrentLMConfig(vocabulary=26, cell=kind, embedding=6, hidden=8, dropout=0.0)).eval()
    text = letters("attention")
    probabilities = model(text).softmax(-1)
    assert probabilities.shape == (1, 9, 26)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(1, 9))

    cell, state, steps = cell_of(model.rnn, kind, 6, 8), None, []
    for letter in text[0]:
        state = cell(model.embedding.weight[letter][None], state)
        h = state[0] if kind == "lstm" else state
        steps.append(model.output(h).softmax(-1))
    torch.testing.assert_close(probabilities, torch.stack(steps, dim=1))


def test_C2_trained_on_letters_it_writes_them() -> None:
    """Generating feeds each drawn letter back in."""
    text = letters("hello")
    model = RecurrentLM(RecurrentLMConfig(vocabulary=26, embedding=8, hidden=16, dropout=0.0))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        loss = F.cross_entropy(model(text[:, :-1])[0], text[0, 1:])  # "hell" -> "ello"
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    state, letter, written = model.start(1), text[:, :1], [text[0, 0]]
    for _ in range(4):
        letter = model.project(model.decode(letter, state=state)).argmax(-1)  # (1, 1)
        written.append(letter[0, 0])
    assert written == text[0].tolist()  # the two l have different successors: the state tells them apart


@pytest.mark.parametrize("kind", CELLS)
def test_C4_the_last_state_is_all_that_the_decoder_gets(kind: str) -> None:
    """Sutskever et al. 2014: read the source whole, start the decoder from the last state."""
    config = RecurrentTranslatorConfig(
        source_vocabulary=9,
        target_vocabulary=9,
        cell=kind,
        embedding=6,
        hidden=8,
        attention="none",
        bidirectional=False,
        dropout=0.0,
    )
    model = RecurrentTranslator(config).eval()
    source, target = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[2, 5, 8]])
    reader, writer = (cell_of(part.rnn, kind, 6, 8) for part in (model.encoder, model.decoder))
    state, logits = None, []
    for token in source[0]:
        state = reader(model.encoder.embedding.weight[token][None], state)
    for token in target[0]:
        state = writer(model.decoder.embedding.weight[token][None], state)
        logits.append(model.output(state[0] if kind == "lstm" else state))
    torch.testing.assert_close(model(source, target), torch.stack(logits, dim=1))
    # The source's other states may be anything.
    encoded = model.encode(source)
    other = Encoded(torch.full_like(encoded.states, 9.0), encoded.keep, encoded.final)
    assert torch.equal(model.decode(target, other), model.decode(target, encoded))
