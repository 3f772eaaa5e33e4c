"""E8: translating, one word at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from regard import RecurrentTranslatorConfig, TransformerConfig, make_model
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.sample import Sample
from regard.text.tokenizers.special_tokens import END, PAD, START

SIDES: dict[str, Any] = {"source_vocabulary": 12, "target_vocabulary": 12, "dropout": 0.0}
TRANSLATORS = {
    "transformer": TransformerConfig(**SIDES, layers=1, dim=24, heads=2, hidden=24),
    "rnn-attention": RecurrentTranslatorConfig(**SIDES, embedding=16, hidden=24),
}


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("search", ["greedy", "sample"])
def test_E8_from_the_start_token_each_word_fed_back_until_the_end_token(name: str, search: str) -> None:
    """Watched from outside: the decoder reads START, then word after word what it wrote itself; after END nothing."""
    model: Any = make_model(TRANSLATORS[name])
    decode, read = model.decode, []

    def watched(tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        read.append(tokens.tolist())
        return decode(tokens, *args, **kwargs)

    model.decode = watched
    ended = 0
    for seed in range(12):
        read.clear()
        choice = {"search": Sample(temperature=2.0, seed=seed)} if search == "sample" else {}
        ((translation,),) = generate_tokens(model, [[4 + seed % 8, 5, 6, END]], max_tokens=15, **choice)
        assert read == [[[START]]] + [[[word]] for word in translation.tokens[:-1]]
        assert END not in translation.tokens[:-1]
        assert translation.finished == (translation.tokens[-1] == END)
        assert translation.finished or len(translation.tokens) == 15
        ended += translation.finished
    assert search == "greedy" or ended > 0


@pytest.mark.parametrize("name", TRANSLATORS)
def test_E8_a_trained_translator_translates_new_sentences(name: str) -> None:
    """A language whose words are the next ones in the dictionary: taught with teacher forcing, it writes alone."""
    torch.manual_seed(0)
    model = make_model(TRANSLATORS[name])
    sentences = torch.randint(4, 11, (260, 3))  # of 343 that there are; the last 60 are for testing

    def pair(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.pad(words, (0, 1), value=END), F.pad(F.pad(words + 1, (1, 0), value=START), (0, 1), value=END)

    seen = {tuple(words) for words in sentences[:200].tolist()}
    source, target = pair(sentences[:200])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        loss = F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    new = [words for words in sentences[200:].tolist() if tuple(words) not in seen]
    assert len(new) >= 10
    found = generate_tokens(model, [[*words, END] for words in new], max_tokens=8)
    right = sum(one.tokens == [*(word + 1 for word in words), END] for words, (one,) in zip(new, found, strict=True))
    assert right >= 0.9 * len(new)
