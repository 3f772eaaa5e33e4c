"""A few sentences learned by heart: training and use agree on tokens, start and end, and the whole way works."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard.api.translator import Translator
from regard.models.config import TransformerConfig
from regard.models.presets import make_model
from regard.text.batches.pairs import PairData
from regard.text.files.corpus import make_corpus

PAIRS = {
    "le chat noir dort": "the black cat sleeps",
    "la petite fille mange une pomme": "the little girl eats an apple",
    "Jane visite l'Afrique en septembre.": "Jane visits Africa in September.",
    "il ne mange pas": "he does not eat",
}


@pytest.fixture(scope="module")
def learned(pieces: Any) -> Translator:
    torch.manual_seed(0)
    sides = {"source_vocabulary": pieces.size, "target_vocabulary": pieces.size}
    model: Any = make_model(TransformerConfig(layers=1, dim=32, heads=2, hidden=64, dropout=0.0, order="pre", **sides))
    data = PairData(make_corpus(list(PAIRS), list(PAIRS.values()), name="here"), pieces, pieces, batch_tokens=500)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    batch = data.collate(range(len(PAIRS)), 0)
    for _ in range(120):
        loss = F.cross_entropy(model(batch.source, batch.inputs).flatten(0, 1), batch.labels.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    return Translator(model.eval(), pieces, pieces)


@pytest.mark.parametrize("beam", [1, 5])
def test_what_was_learned_is_translated(learned: Translator, beam: int) -> None:
    found = learned.translate(list(PAIRS), beam=beam)
    assert [one.text for one in found] == list(PAIRS.values())
    assert all(one.finished and one.tokens[-1] == "</s>" for one in found)


def test_what_was_learned_is_likely(learned: Translator) -> None:
    right = learned.score(list(PAIRS), list(PAIRS.values()))
    wrong = learned.score(list(PAIRS), list(PAIRS.values())[::-1])
    assert max(one.perplexity for one in right) < 1.2 < 3 < min(one.perplexity for one in wrong)


def test_a_prefix_leads_on_to_the_rest(learned: Translator) -> None:
    found = learned.translate("Jane visite l'Afrique en septembre.", prefix="Jane visits")
    assert found.text == "Jane visits Africa in September."
