"""D14, D15: Bahdanau's and Luong's translators, written out here from their equations with torch's cells.

n source tokens   h_j source states   s_i decoder states   c_i contexts
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import regard
from regard import RecurrentTranslator, RecurrentTranslatorConfig

SOURCE, TARGET = torch.tensor([[4, 5, 6, 7, 8]]), torch.tensor([[2, 5, 8, 3]])
CELLS = {"rnn": (nn.RNN, nn.RNNCell), "gru": (nn.GRU, nn.GRUCell), "lstm": (nn.LSTM, nn.LSTMCell)}


def translator(**settings: object) -> RecurrentTranslator:
    torch.manual_seed(5)
    config = RecurrentTranslatorConfig(
        source_vocabulary=9, target_vocabulary=9, embedding=6, hidden=8, dropout=0.0, **settings
    )
    return RecurrentTranslator(config).eval()


def read(model: RecurrentTranslator, cell: str) -> tuple[Tensor, list[Tensor]]:
    """The source states h_j (n, 8) by torch's bidirectional net, and the decoder's first state, h or h and c."""
    net = CELLS[cell][0](6, 4, bidirectional=True)
    net.load_state_dict(model.encoder.rnn.state_dict())
    h, last = net(model.encoder.embedding.weight[SOURCE[0]])  # (n, 8), (2, 4)
    both = [torch.cat([part[0], part[1]]) for part in (last if cell == "lstm" else [last])]
    bridge = model.decoder.bridge
    return h, [torch.tanh(bridge.weight @ part + bridge.bias) for part in both]


def writer(model: RecurrentTranslator, cell: str, inputs: int) -> nn.Module:
    one = CELLS[cell][1](inputs, 8)
    one.load_state_dict({name.removesuffix("_l0"): w for name, w in model.decoder.rnn.state_dict().items()})
    return one


def move(one: nn.Module, x: Tensor, state: list[Tensor]) -> list[Tensor]:
    """One step of torch's cell: the new h, or h and c."""
    new = one(x, tuple(state) if len(state) == 2 else state[0])
    return list(new) if len(state) == 2 else [new]


@pytest.mark.parametrize("cell", CELLS)
def test_D14_bahdanau(cell: str) -> None:
    """e_ij = v . tanh(W s_{i-1} + U h_j); alpha = softmax(e); c_i = sum_j alpha_ij h_j; g sees s_i, c_i, y_{i-1}."""
    model = translator(cell=cell)
    h, state = read(model, cell)
    step, score, readout = writer(model, cell, 6 + 8), model.decoder.cross_attention.score, model.decoder.readout
    logits, alphas = [], []
    for token in TARGET[0]:
        y = model.decoder.embedding.weight[token]
        e = torch.stack(
            [score.weight @ torch.tanh(score.query.weight @ state[0] + score.key.weight @ h_j) for h_j in h]
        )
        alpha = e.exp() / e.exp().sum()
        c = sum(a * h_j for a, h_j in zip(alpha, h, strict=True))
        state = move(step, torch.cat([y, c]), state)
        logits.append(model.output(torch.tanh(readout(torch.cat([state[0], c, y])))))
        alphas.append(alpha)
    with regard.record(model) as maps:
        got = model(SOURCE, TARGET)
    torch.testing.assert_close(got[0], torch.stack(logits), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(maps["decoder.cross"][0, 0], torch.stack(alphas), atol=1e-5, rtol=1e-5)


def test_D14_it_picks_among_the_source_anew_for_each_word() -> None:
    """One level of attention, another distribution for each target word; and it is a sequence that is encoded."""
    model = translator()
    assert model.encode(SOURCE).states.shape == (1, 5, 8)
    with regard.record(model) as maps:
        model(SOURCE, TARGET)
    assert list(maps) == ["decoder.cross"]
    rows = maps["decoder.cross"][0, 0]
    assert rows.shape == (4, 5) and len(rows.unique(dim=0)) == 4


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("attention", ["dot", "bilinear", "scaled", "concat"])
@pytest.mark.parametrize("cell", CELLS)
def test_D15_luong(cell: str, attention: str, feeding: bool) -> None:
    """s_i first, then a(s_i, h_j); the attentional state tanh(W [c_i; s_i]) predicts, and may be fed back."""
    model = translator(cell=cell, attention=attention, style="luong", input_feeding=feeding)
    h, state = read(model, cell)
    step, readout = writer(model, cell, 6 + 8 * feeding), model.decoder.readout
    score, logits, fed = model.decoder.cross_attention.score, [], torch.zeros(8)
    for token in TARGET[0]:
        y = model.decoder.embedding.weight[token]
        state = move(step, torch.cat([y, fed]) if feeding else y, state)
        s = state[0]
        e = {
            "dot": lambda s=s: h @ s,
            "scaled": lambda s=s: h @ s / 8**0.5,
            "bilinear": lambda s=s: torch.stack([s @ score.weight @ h_j for h_j in h]),
            "concat": lambda s=s: torch.stack(
                [score.weight @ torch.tanh(score.stacked.weight @ torch.cat([s, h_j])) for h_j in h]
            ),
        }[attention]()
        c = e.softmax(0) @ h
        fed = torch.tanh(readout(torch.cat([c, s])))
        logits.append(model.output(fed))
    torch.testing.assert_close(model(SOURCE, TARGET)[0], torch.stack(logits), atol=1e-5, rtol=1e-5)
