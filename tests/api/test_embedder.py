"""The embedder: the model's vectors, of unit length, whatever else is in the list."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from regard.api import embedder as module
from regard.api.embedder import Embedder
from regard.errors import DataError, ModelError
from regard.models.config import EncoderConfig
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import END

TEXTS = ["le chat noir", "Jane visite l'Afrique en septembre.", "", "the cat", "the black cat sleeps in the house"]


@torch.no_grad()
def by_hand(embedder: Embedder, text: str) -> torch.Tensor:
    return F.normalize(embedder.model(torch.tensor([[*embedder.tokenizer.encode(text), END]]))[0], dim=0)


def test_rows_are_the_models_vectors(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = torch.stack([by_hand(embedder, text) for text in TEXTS])
    torch.testing.assert_close(embedder.embed(TEXTS), wanted, atol=1e-5, rtol=1e-4)
    monkeypatch.setattr(module, "BATCH_TOKENS", 12)  # a batch of one or two
    found = embedder.embed(TEXTS)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    assert found.shape == (5, 16) and found.dtype == torch.float32 and not found.requires_grad
    torch.testing.assert_close(found.norm(dim=1), torch.ones(5))


def test_a_model_in_training_embeds_without_dropout(embedder: Embedder) -> None:
    wanted = embedder.embed(TEXTS)
    embedder.model.train()
    assert torch.equal(embedder.embed(TEXTS), wanted) and embedder.model.training


def test_one_text_is_one_row_and_none_are_none(embedder: Embedder) -> None:
    assert embedder.embed("le chat").shape == (1, 16)
    assert embedder.embed([]).shape == (0, 16)


def test_similarity_is_the_cosine(embedder: Embedder) -> None:
    found = embedder.similarity(TEXTS[:2], TEXTS)
    wanted = F.cosine_similarity(
        torch.stack([by_hand(embedder, text) for text in TEXTS[:2]])[:, None],
        torch.stack([by_hand(embedder, text) for text in TEXTS])[None],
        dim=-1,
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.diagonal(), torch.ones(2))


def test_vectors_have_unit_length_if_the_model_normalizes_them(embedder: Embedder) -> None:
    config = EncoderConfig(layers=1, dim=8, heads=2, hidden=8, vocabulary=embedder.tokenizer.size)
    model = make_model(config).eval()
    without = make_model(dataclasses.replace(config, normalize=False)).eval()
    without.load_state_dict(model.state_dict())
    unit, raw = (Embedder(each, embedder.tokenizer).embed(TEXTS) for each in (model, without))
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(5))
    assert (raw.norm(dim=1) - 1).abs().min() > 0.01
    torch.testing.assert_close(F.normalize(raw, dim=1), unit)


def test_what_does_not_fit(embedder: Embedder) -> None:
    size = embedder.tokenizer.size
    config = EncoderConfig(layers=1, dim=8, heads=2, hidden=8, vocabulary=size, position="learned", max_length=6)
    with pytest.raises(DataError, match="this model has positions for 6 only: split the text"):
        Embedder(make_model(config), embedder.tokenizer).embed(["le chat " * 9])
    config = EncoderConfig(layers=1, dim=8, heads=2, hidden=8, vocabulary=size - 1)
    with pytest.raises(ModelError, match=f"has {size} tokens, but the model only {size - 1}"):
        Embedder(make_model(config), embedder.tokenizer)
