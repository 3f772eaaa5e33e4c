"""Texts that go in circles: found by hand, barred in every search, and only where it is one copy too many."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, strategies as st
from torch import Tensor

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.repetition import Repetition, bar_degenerate_output, find_repetition
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Search
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

rows = st.lists(st.integers(4, 6), max_size=14)


def circle_by_hand(tokens: list[int]) -> tuple[int, set[int]]:
    """The most copies in a row, and where the first copy may end."""
    found: dict[int, set[int]] = {min(len(tokens), 1): {len(tokens)}}
    for start in range(len(tokens)):
        for period in range(1, len(tokens)):
            unit, count = tokens[start : start + period], 1
            while tokens[start + count * period : start + (count + 1) * period] == unit:
                count += 1
            if count > 1:
                found.setdefault(count, set()).add(start + period)
    return max(found), found[max(found)]


@given(rows)
@example([4, 5, 6, 5, 6, 5, 6])
@example([4, 4, 4])
def test_circles_by_hand(tokens: list[int]) -> None:
    copies, ends = circle_by_hand(tokens)
    found = find_repetition(tokens)
    assert found.copies == copies and found.end in ends
    assert find_repetition([str(token) for token in tokens]) == found


def test_where_the_first_copy_ends() -> None:
    assert find_repetition(
        ["he", "goes", "to", "the", "sea", "to", "the", "sea", "to", "the", "sea", "and"]
    ) == Repetition(3, 5)
    assert find_repetition(["a", "b", "b", "a"]) == Repetition(2, 2)
    assert find_repetition([]) == Repetition(0, 0)


def circles(text: list[int], token: int) -> bool:
    """Whether the text ends with three copies when this token follows."""
    longer = [*text, token]
    return any(longer[-3 * k :] == longer[-k:] * 3 for k in (1, 2, 3))


@given(st.lists(st.lists(st.integers(4, 6), min_size=8, max_size=8), min_size=1, max_size=4))
def test_just_the_third_copy_is_barred(written: list[list[int]]) -> None:
    logps = torch.arange(7.0).repeat(len(written), 1)
    bar_degenerate_output(logps, torch.tensor(written), 8)
    for row, text in zip(logps.tolist(), written, strict=True):
        ends = [circles(text, token) for token in range(7)]
        assert row == [-math.inf if end else float(token) for token, end in enumerate(ends)]


def test_no_text_is_empty() -> None:
    logps = torch.zeros(2, 5)
    bar_degenerate_output(logps, torch.tensor([[2], [2]]), 0)
    assert logps.tolist() == [[0.0, 0, 0, -math.inf, 0]] * 2
    bar_degenerate_output(later := torch.zeros(1, 5), torch.tensor([[2, 4]]), 1)
    assert not later.any()


class Circling(Transformer):
    """A model that thinks tokens 4 and 5 by far the most likely ones, whatever it reads and wrote."""

    def project(self, hidden: Tensor) -> Tensor:
        return torch.tensor([0.0, 0, 0, 0, 9, 8, 1, 1, 1]).expand(*hidden.shape[:-1], -1).clone()


@pytest.mark.parametrize("search", [Greedy(), Beam(3), Sample(temperature=0.5, seed=3)])
def test_no_search_goes_in_circles(search: Search) -> None:
    sizes = {"layers": 1, "dim": 8, "heads": 2, "hidden": 8}
    model = Circling(TransformerConfig(source_vocabulary=9, target_vocabulary=9, **sizes))
    found = [
        generate_tokens(model, [[4, 5, 3], [6, 3]], search=search, max_tokens=[40, 9], allow_nonsense=allow)
        for allow in (True, False)
    ]
    for (free, *_), (barred, *_) in zip(*found, strict=True):
        assert find_repetition(free.tokens).copies > 2 >= find_repetition(barred.tokens).copies
        assert set(barred.tokens) <= {*range(3, 9)}
        assert all(math.isfinite(logp) for logp in barred.logps)
