"""H4: the weights of a model can be looked at: recorded by name, drawn as they are, and free when not asked for."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.look.pictures.matrices import alignment_plot
from regard.models.config import RecurrentTranslatorConfig, TransformerConfig
from regard.models.recurrent.translator import RecurrentTranslator
from regard.models.transformer import Transformer

SOURCE, TARGET = torch.tensor([[3, 5, 4, 6, 7]]), torch.tensor([[1, 4, 5, 6]])


def transformer() -> Transformer:
    config = TransformerConfig(source_vocabulary=9, target_vocabulary=9, dim=16, heads=4, layers=2, hidden=32)
    return Transformer(config).eval()


def bahdanau() -> RecurrentTranslator:
    config = RecurrentTranslatorConfig(source_vocabulary=9, target_vocabulary=9, hidden=16, embedding=8)
    return RecurrentTranslator(config).eval()


def test_H4_every_map_of_a_transformer_by_name() -> None:
    model = transformer()
    with regard.record(model) as recorded:
        model(SOURCE, TARGET)
    shapes = {name: tuple(weights.shape) for name, weights in recorded.items()}
    assert shapes == {
        "encoder.0.self": (1, 4, 5, 5), "encoder.1.self": (1, 4, 5, 5),
        "decoder.0.self": (1, 4, 4, 4), "decoder.0.cross": (1, 4, 4, 5),
        "decoder.1.self": (1, 4, 4, 4), "decoder.1.cross": (1, 4, 4, 5),
    }  # fmt: skip
    for name, weights in recorded.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), msg=name)
    assert recorded["decoder.0.self"].triu(1).count_nonzero() == 0  # nobody looked ahead


def test_H4_recorded_weights_are_the_ones_that_were_used() -> None:
    """Bahdanau's context is c_i = sum_j alpha_ij h_j (D14), with the recorded alpha and the encoder's h."""
    model = bahdanau()
    contexts = []
    with regard.record(model) as recorded:
        handle = model.decoder.cross_attention.register_forward_hook(lambda *call: contexts.append(call[-1]))
        model(SOURCE, TARGET)
        handle.remove()
    alpha = recorded["decoder.cross"][:, 0]  # (B, m, n)
    h = model.encode(SOURCE).states  # (B, n, width)
    torch.testing.assert_close(torch.cat(contexts, dim=1), alpha @ h)


@pytest.mark.parametrize(
    ("make", "name", "head"), [(transformer, "decoder.1.cross", 2), (bahdanau, "decoder.cross", 0)]
)
def test_H4_recorded_weights_can_be_drawn(make, name: str, head: int) -> None:
    model = make()
    with regard.record(model) as recorded:
        model(SOURCE, TARGET)
    weights = recorded[name][0, head]
    figure = alignment_plot(weights, list("abcde"), list("wxyz"))
    (image,) = figure.axes[0].images
    assert torch.equal(torch.from_numpy(image.get_array().filled()), weights)


@pytest.mark.parametrize("make", [transformer, bahdanau])
def test_H4_looking_changes_nothing_and_leaves_nothing(make) -> None:
    model = make()
    before = model(SOURCE, TARGET)
    with regard.record(model) as recorded:
        during = model(SOURCE, TARGET)
    count = len(recorded)
    after = model(SOURCE, TARGET)
    torch.testing.assert_close(during, before, rtol=1e-5, atol=1e-5)
    assert torch.equal(after, before) and len(recorded) == count
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
