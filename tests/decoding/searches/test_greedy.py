"""Greedy search against a loop over the model's plain forward pass, and its rule for equals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.greedy import Greedy
from regard.text.tokenizers.special_tokens import END, PAD, START


@torch.no_grad()
def naive_greedy(case: Any, row: int, limit: int) -> tuple[list[int], list[float]]:
    """The most probable token after all that was written so far, from scratch each time."""
    text: list[int] = []
    scores: list[float] = []
    while len(text) < limit and END not in text:
        logps = case.logps(row, text).tolist()
        allowed = [token for token in range(len(logps)) if token not in (PAD, START)]
        text.append(max(allowed, key=lambda token: logps[token]))  # max takes the first of equals
        scores.append(logps[text[-1]])
    return text, scores


def test_against_the_naive_loop(case: Any) -> None:
    found = generate_tokens(case.model, case.source, prefixes=case.prefixes, search=Greedy(), max_tokens=10)
    assert len(found) == 7
    for row, (one,) in enumerate(found):
        text, scores = naive_greedy(case, row, 10)
        assert one.tokens == text
        assert one.logps == pytest.approx(scores, abs=1e-9)
        assert one.score == one.ranking == pytest.approx(sum(scores), abs=1e-9)
        assert one.finished == (text[-1] == END)


def test_of_equals_the_lower_token(automaton_of: Callable[..., Any]) -> None:
    model = automaton_of({2: {6: 0.4, 4: 0.4, 3: 0.2}, 4: {5: 0.5, 3: 0.5}})
    (one,) = generate_tokens(model, None, prefixes=[[]], max_tokens=5)[0]
    assert one.tokens == [4, END]
    assert one.score == pytest.approx(torch.tensor(0.4 * 0.5).log().item())
