"""H3: attention works together with recurrent nets, and also alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard import KeyValueAttention, MultiHeadAttention, RecurrentTranslatorConfig, TransformerConfig, make_model
from regard.text.tokenizers.special_tokens import pad_batch, wrap

SIZES = {"source_vocabulary": 12, "target_vocabulary": 12, "dropout": 0.0}
MODELS = {
    "with a recurrent net": RecurrentTranslatorConfig(**SIZES, embedding=16, hidden=32),
    "alone": TransformerConfig(**SIZES, layers=1, dim=32, heads=4, hidden=64, order="pre"),
}
# Turned around: what was said last is written first, so that a word's place says little.
PAIRS = [([4, 5, 6, 7], [7, 6, 5, 4]), ([8, 4, 9], [9, 4, 8]), ([10, 11], [11, 10]), ([6, 8, 10], [10, 8, 6])]


@pytest.mark.parametrize("name", MODELS)
def test_H3_both_learn_to_translate(name: str) -> None:
    model = make_model(MODELS[name])
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    assert recurrent == (name == "with a recurrent net")  # the other has attention and nothing that runs through time
    with regard.record(model) as maps:
        source = pad_batch([french for french, _ in PAIRS])
        target = pad_batch([wrap(english) for _, english in PAIRS])
        model(source, target[:, :-1])
    assert any(layer.endswith("cross") for layer in maps)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    real = target[:, 1:] != 0

    def right() -> float:
        guessed = model(source, target[:, :-1]).argmax(-1)
        return (guessed == target[:, 1:])[real].float().mean().item()

    assert right() == 1.0
    # It is attention that does it: what the decoder sees of the source without it is not enough.
    for layer in model.modules():
        if isinstance(layer, KeyValueAttention | MultiHeadAttention):
            layer.register_forward_hook(lambda layer, inputs, y: torch.zeros_like(y))
    assert right() < 0.8
