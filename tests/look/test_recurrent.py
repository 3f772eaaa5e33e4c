"""Gates and states along a text: against torch's own layers, and against the equations gate by gate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.api.translator import Translator
from regard.api.writer import Writer
from regard.layers.recurrent import GRU, LSTM, RNN
from regard.look.recurrent import cell_values, recurrent_states
from regard.models.config import EncoderConfig, RecurrentLMConfig, RecurrentTranslatorConfig
from regard.models.presets import make_model
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import START

T, D, H = 6, 3, 4
TOKENIZER = train_characters(["the cat sat on a mat."])


def same_weights(ours: torch.nn.Module, theirs: torch.nn.Module) -> torch.nn.Module:
    theirs.load_state_dict(ours.state_dict())
    return theirs


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(
    ("kind", "torchs"), [(RNN, torch.nn.RNN), (GRU, torch.nn.GRU), (LSTM, torch.nn.LSTM)], ids=["rnn", "gru", "lstm"]
)
def test_C1_states_are_those_of_torch(kind: Any, torchs: Any, bidirectional: bool, layers: int) -> None:
    torch.manual_seed(1)
    layer = kind(D, H, num_layers=layers, bidirectional=bidirectional)
    x = torch.randn(T, D)
    outputs, final = same_weights(layer, torchs(D, H, layers, bidirectional=bidirectional))(x)
    recorded = cell_values(layer, x)
    assert [(one.layer, one.backwards) for one in recorded] == [
        (depth, backwards) for depth in range(layers) for backwards in ((False, True) if bidirectional else (False,))
    ]
    top = torch.cat([one.values["h"] for one in recorded if one.layer == layers - 1], dim=-1)
    torch.testing.assert_close(top, outputs)
    for one, last in zip(recorded, final[1] if kind is LSTM else final, strict=True):
        torch.testing.assert_close(one.values["c" if kind is LSTM else "h"][0 if one.backwards else -1], last)


def test_C1_lstm_gates_by_the_printed_equations() -> None:
    """Each gate from its own block of torch's stacked matrices: input, forget, cell, output."""
    torch.manual_seed(2)
    layer, x = LSTM(D, H), torch.randn(T, D)
    (recorded,) = cell_values(layer, x)
    h = c = torch.zeros(H)
    for t in range(T):
        gates = {}
        for block, (name, squash) in enumerate(
            {"i": torch.sigmoid, "f": torch.sigmoid, "g": torch.tanh, "o": torch.sigmoid}.items()
        ):
            rows = slice(block * H, (block + 1) * H)
            total = layer.weight_ih_l0[rows] @ x[t] + layer.bias_ih_l0[rows]
            gates[name] = squash(total + layer.weight_hh_l0[rows] @ h + layer.bias_hh_l0[rows])
        c = gates["f"] * c + gates["i"] * gates["g"]
        h = gates["o"] * torch.tanh(c)
        for name, expected in {**gates, "c": c, "h": h}.items():
            torch.testing.assert_close(recorded.values[name][t], expected)


def test_C1_gru_gates_mix_the_old_state_with_the_new_content() -> None:
    """h' = (1 - z) n + z h holds for the recorded values, and r is what makes n from the state before."""
    torch.manual_seed(3)
    layer, x = GRU(D, H), torch.randn(T, D)
    (recorded,) = cell_values(layer, x)
    r, z, n, h = (recorded.values[name] for name in "rznh")
    before = torch.cat([torch.zeros(1, H), h[:-1]])
    torch.testing.assert_close(h, (1 - z) * n + z * before)
    content = x @ layer.weight_ih_l0[2 * H :].T + layer.bias_ih_l0[2 * H :]
    state = before @ layer.weight_hh_l0[2 * H :].T + layer.bias_hh_l0[2 * H :]
    torch.testing.assert_close(n, torch.tanh(content + r * state))
    assert ((r > 0) & (r < 1)).all() and not torch.allclose(r, z)


@pytest.fixture(scope="module", params=["rnn", "gru", "lstm"])
def writer(request: pytest.FixtureRequest) -> Writer:
    torch.manual_seed(4)
    sizes = {"layers": 2, "embedding": 5, "hidden": 7, "dropout": 0.5}
    model = make_model(RecurrentLMConfig(vocabulary=TOKENIZER.size, cell=request.param, **sizes))
    return Writer(model, TOKENIZER)


def test_C2_predictions_are_the_models(writer: Writer) -> None:
    states = recurrent_states(writer, "a cat")
    assert states.tokens == ["<s>", "a", "▁", "c", "a", "t"] and states.vector is None and states.output is None
    logits = writer.model.eval()(torch.tensor([[START, *TOKENIZER.encode("a cat")]]))[0]
    for row, predicted in zip(logits.softmax(-1), states.predictions, strict=True):
        best = row.topk(len(predicted))
        assert [text for text, _ in predicted] == TOKENIZER.pieces(best.indices.tolist())
        assert [p for _, p in predicted] == pytest.approx(best.values.tolist(), rel=1e-5)


def test_C3_gradients_are_those_of_autograd(writer: Writer) -> None:
    states = recurrent_states(writer, "a cat sat")
    x = writer.model.embedding(torch.tensor([START, *TOKENIZER.encode("a cat sat")])).detach()
    jacobian = torch.autograd.functional.jacobian(lambda x: writer.model.rnn(x[None])[0][0, -1], x)  # (H, T, D)
    assert states.gradients == pytest.approx(jacobian.square().sum((0, 2)).sqrt().flip(0).tolist(), rel=1e-4)


def test_C3_gradients_of_a_long_text_start_from_the_state_before(writer: Writer) -> None:
    """Of a text of more than 80 tokens the last 80 are differentiated, from the state that the others left."""
    text = "the cat sat on a mat. " * 5
    states = recurrent_states(writer, text)
    assert len(states.gradients) == 80
    x = writer.model.embedding(torch.tensor([START, *TOKENIZER.encode(text)])).detach()
    last = x[-1:].clone()

    def final_state(last: torch.Tensor) -> torch.Tensor:
        return writer.model.rnn(torch.cat([x[:-1], last])[None])[0][0, -1]

    assert states.gradients[0] == pytest.approx(
        torch.autograd.functional.jacobian(final_state, last).norm().item(), rel=1e-4
    )


@pytest.mark.parametrize("bidirectional", [False, True])
def test_C4_the_vector_is_the_last_state_of_the_encoder(bidirectional: bool) -> None:
    torch.manual_seed(5)
    sides = {"source_vocabulary": TOKENIZER.size, "target_vocabulary": TOKENIZER.size}
    config = RecurrentTranslatorConfig(
        **sides, attention="none", embedding=5, hidden=8, layers=2, bidirectional=bidirectional
    )
    translator = Translator(make_model(config), TOKENIZER, TOKENIZER)
    states = recurrent_states(translator, "a cat")
    encoded = translator.model.eval().encode(torch.tensor([translator.read("a cat").ids]))
    torch.testing.assert_close(states.vector, encoded.final[-1, 0].detach())
    assert states.output == translator.translate("a cat", beam=1).text
    assert bool(states.gradients) is not bidirectional and states.predictions == []


def test_other_models_and_empty_texts_are_refused(writer: Writer) -> None:
    with pytest.raises(ValueError, match="the text is empty"):
        recurrent_states(writer, "  ")
    from regard.api.embedder import Embedder

    encoder = make_model(EncoderConfig(vocabulary=TOKENIZER.size, layers=1, dim=8, heads=2, hidden=8))
    with pytest.raises(ValueError, match="kind 'encoder' has no recurrent layers"):
        recurrent_states(Embedder(encoder, TOKENIZER), "a cat")
