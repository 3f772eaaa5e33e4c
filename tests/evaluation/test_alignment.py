"""Alignments: hand-computed error rates, links and word weights.

H heads   m target words   n source words
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.evaluation.alignment import (
    GoldLinks,
    alignment_error_rate,
    format_links,
    hard_alignment,
    mutual_alignment,
    parse_links,
    read_links,
    word_weights,
)
from regard.text.tokenizers.tokenizer import Word

links = st.frozensets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8)


def test_error_rate_by_hand() -> None:
    """A = 4 links: 2 sure, 1 possible, 1 wrong; S = 3: 1 - (2 + 3) / (4 + 3) = 2/7."""
    predicted = [{(0, 0), (1, 2), (2, 1), (3, 3)}]
    sure = [{(0, 0), (1, 2), (4, 4)}]
    assert alignment_error_rate(predicted, sure, [{(2, 1)}]) == pytest.approx(2 / 7)
    # Without possible links P is S: 1 - (2 + 2) / (4 + 3).
    assert alignment_error_rate(predicted, sure) == pytest.approx(3 / 7)
    # Sure links are possible whether the gold file says so or not.
    assert alignment_error_rate(predicted, sure, [{(2, 1), (0, 0)}]) == pytest.approx(2 / 7)


def test_error_rate_sums_over_sentences() -> None:
    """Sentences of 1 and 3 links: 1 - (0 + 6) / (2 + 6) = 1/4, not the mean of 1 and 0."""
    three = {(0, 0), (1, 1), (2, 2)}
    assert alignment_error_rate([{(0, 1)}, three], [{(0, 0)}, three]) == pytest.approx(1 / 4)


@given(links.filter(bool), links)
def test_error_rate_bounds(sure: frozenset, possible: frozenset) -> None:
    assert alignment_error_rate([sure], [sure], [possible]) == 0
    assert alignment_error_rate([sure | possible], [sure], [possible]) == 0
    assert alignment_error_rate([frozenset()], [sure], [possible]) == 1


@given(links.filter(bool), links.filter(bool))
def test_error_rate_without_possible_links_is_one_minus_f1(sure: frozenset, predicted: frozenset) -> None:
    """Och & Ney 2003, section 5: with P = S, the rate is 1 - 2 / (1 / precision + 1 / recall)."""
    precision, recall = (len(sure & predicted) / len(side) for side in (predicted, sure))
    f1 = 2 / (1 / precision + 1 / recall) if precision else 0.0
    assert alignment_error_rate([predicted], [sure]) == pytest.approx(1 - f1)


def test_error_rate_errors() -> None:
    with pytest.raises(DataError, match="2 sentences predicted, 1 with sure links and 1 with possible"):
        alignment_error_rate([set(), set()], [{(0, 0)}])
    with pytest.raises(DataError, match="no links to compare"):
        alignment_error_rate([set()], [set()])


def test_mutual_alignment_by_hand() -> None:
    """All three words attend most to column 0, which the first one has the best claim to.

    Column sums are 1.9, 0.7 and 0.4, so row 1 compares 0.5 / sqrt(1.9) = 0.36, 0.4 / sqrt(0.7) = 0.48 and
    0.1 / sqrt(0.4) = 0.16; row 2 compares 0.5 / sqrt(1.9) = 0.36, 0.2 / sqrt(0.7) = 0.24 and 0.3 / sqrt(0.4) = 0.47.
    """
    weights = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.5, 0.2, 0.3]])
    assert hard_alignment(weights) == {(0, 0), (0, 1), (0, 2)}
    assert mutual_alignment(weights) == {(0, 0), (1, 1), (2, 2)}
    assert mutual_alignment(torch.eye(3)[:, [2, 0, 1]]) == hard_alignment(torch.eye(3)[:, [2, 0, 1]])
    assert mutual_alignment(torch.tensor([[1.0, 0.0]])) == {(0, 0)}  # a column without weight gets no link
    assert mutual_alignment(torch.zeros(0, 3)) == set()


def test_hard_alignment() -> None:
    """Row i is target word i; pairs name the source word first. A row of zeros looks at nothing."""
    weights = torch.tensor([[0.1, 0.7, 0.2], [0.4, 0.3, 0.3], [0.0, 0.0, 0.0]])
    assert hard_alignment(weights) == {(1, 0), (0, 1)}
    assert hard_alignment(weights, threshold=0.5) == {(1, 0)}
    assert hard_alignment(torch.zeros(0, 3)) == hard_alignment(torch.zeros(3, 0)) == set()
    with pytest.raises(ValueError, match=r"got \(1, 2, 3\)"):
        hard_alignment(torch.zeros(1, 2, 3))


def test_word_weights_by_hand() -> None:
    """Source pieces 0 and 1 are one word; target pieces 1 and 2 are one word."""
    weights = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    source, target = [Word("ab", 0, 2), Word("c", 2, 3)], [Word("x", 0, 1), Word("yz", 1, 3)]
    expected = torch.tensor([[0.75, 0.25], [0.625, 0.375]])
    torch.testing.assert_close(word_weights(weights, source, target), expected)
    stacked = word_weights(torch.stack([weights, weights.flip(0)]), source, target)  # heads (H, m, n)
    torch.testing.assert_close(stacked[0], expected)
    torch.testing.assert_close(stacked[1], torch.tensor([[0.5, 0.5], [0.75, 0.25]]))


@given(seed=st.integers(0, 999), source=st.lists(st.integers(1, 3), min_size=1, max_size=4), m=st.integers(1, 5))
def test_word_weights_still_sum_to_one(seed: int, source: list[int], m: int) -> None:
    ends = [sum(source[: i + 1]) for i in range(len(source))]
    words = [Word("w", end - size, end) for end, size in zip(ends, source, strict=True)]
    weights = torch.rand(2, m, ends[-1], generator=torch.Generator().manual_seed(seed)).double().softmax(-1)
    rows = word_weights(weights, words, [Word("all", 0, m)])
    assert rows.shape == (2, 1, len(source))
    torch.testing.assert_close(rows.sum(-1), torch.ones(2, 1, dtype=torch.float64))


def test_word_weights_leave_out_what_is_no_word() -> None:
    weights = torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    torch.testing.assert_close(word_weights(weights, [Word("a", 0, 1)], [Word("x", 0, 1)]), torch.tensor([[0.5]]))
    with pytest.raises(ValueError, match="source word 0 spans tokens 1:3, but there are 2"):
        word_weights(weights, [Word("a", 1, 3)], [])
    with pytest.raises(ValueError, match="target word 1 spans tokens 1:1"):
        word_weights(weights, [], [Word("a", 0, 1), Word("b", 1, 1)])


def test_pharaoh_format(tmp_path: Path) -> None:
    assert parse_links("0-0 1-2 0?1 3p10") == GoldLinks(frozenset({(0, 0), (1, 2)}), frozenset({(0, 1), (3, 10)}))
    assert parse_links("0?0 0-0") == GoldLinks(frozenset({(0, 0)}))
    assert format_links({(10, 1), (2, 2)}, {(2, 1), (2, 2)}) == "2?1 2-2 10-1"
    path = tmp_path / "gold.txt"
    path.write_text("0-1\n\n1?0\r\n")
    assert read_links(path) == [
        GoldLinks(frozenset({(0, 1)})), GoldLinks(frozenset()), GoldLinks(frozenset(), frozenset({(1, 0)})),
    ]  # fmt: skip


@given(links, links)
def test_pharaoh_round_trip(sure: frozenset, possible: frozenset) -> None:
    assert parse_links(format_links(sure, possible)) == GoldLinks(sure, possible - sure)


@pytest.mark.parametrize("text", ["0", "0-", "1_2", "-1-2", "0-1-2", "a-b", "²-1"])
def test_pharaoh_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gold.txt"
    path.write_text(f"0-0\n1-1 {text}\n")
    with pytest.raises(DataError, match=f"gold.txt:2: '{text}' is not a link; links are written 0-1"):
        read_links(path)
