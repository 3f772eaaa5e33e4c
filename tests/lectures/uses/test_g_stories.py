"""G3: a summary and an answer, each as small as can be, with attention that shows where they come from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import regard
from regard import AnswererConfig, PointerGenerator, SummarizerConfig, make_model
from regard.text.tokenizers.special_tokens import END, START

MARK, WHO, WHERE = 4, 5, 6
WORDS = range(8, 24)
SIZES = {"source_vocabulary": 24, "target_vocabulary": 24, "layers": 1, "dim": 32, "heads": 2, "hidden": 32}


def marked_texts(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Six words, one of them after a mark; the summary is that word. Also its place."""
    words = torch.randint(WORDS.start, WORDS.stop, (count, 6))
    places = torch.randint(6, (count,))
    rows = [
        torch.cat([row[:place], torch.tensor([MARK]), row[place:]])
        for row, place in zip(words, places.tolist(), strict=True)
    ]
    return torch.stack(rows), words[torch.arange(count), places], places + 1


def questions(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """A person, a place and a question; the answer is the one or the other. Also its place."""
    story = torch.randint(WORDS.start, WORDS.stop, (count, 2))
    asked = torch.randint(2, (count,))
    source = torch.cat([story, (WHO + asked)[:, None]], dim=1)
    return source, story[torch.arange(count), asked], asked


@pytest.mark.parametrize(
    ("config", "draw"),
    [(SummarizerConfig, marked_texts), (AnswererConfig, questions)],
    ids=["summary", "answer"],
)
def test_G3_summaries_and_answers_copy_what_attention_points_at(config: type, draw: object) -> None:
    assert callable(draw)
    torch.manual_seed(0)
    model = make_model(config(**SIZES, order="pre", position="rotary", dropout=0.0))
    assert isinstance(model, PointerGenerator)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(100):
        source, word, _ = draw(64)
        target = torch.stack([torch.full_like(word, START), word], dim=1)
        labels = torch.stack([word, torch.full_like(word, END)], dim=1)
        optimizer.zero_grad()
        F.nll_loss(model(source, target).flatten(0, 1), labels.flatten()).backward()
        optimizer.step()
    source, word, place = draw(100)
    model.eval()
    with torch.no_grad(), regard.record(model) as maps:
        state = model.start(model.encode(source), 2)
        written = model.project(model.decode(torch.full((100, 1), START), state=state))[:, 0].argmax(-1)
    assert (written == word).float().mean() > 0.95
    pointed = maps["pointer"][:, 0, 0].argmax(-1)
    same_word = source[torch.arange(100), pointed] == word  # the word may occur twice
    assert ((pointed == place) | same_word).float().mean() > 0.9
