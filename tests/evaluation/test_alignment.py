"""Alignments: hand-computed error rates, and heads whose right answer is known.

H heads   m target words   n source words
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard.errors import DataError
from regard.evaluation.alignment import (
    GoldLinks,
    alignment_error_rate,
    choose_alignment_head,
    format_links,
    hard_alignment,
    mutual_information,
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


def test_error_rate_errors() -> None:
    with pytest.raises(DataError, match="2 sentences predicted, 1 with sure links and 1 with possible"):
        alignment_error_rate([set(), set()], [{(0, 0)}])
    with pytest.raises(DataError, match="no links to compare"):
        alignment_error_rate([set()], [set()])


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


def test_mutual_information_by_hand() -> None:
    """Pairs that decide each other tell the entropy, ln 2; independent ones nothing; and one in between.

    c(a,x) = 2, c(a,y) = 1, c(b,y) = 1 of 4: 1/2 ln(2·4 / (3·2)) + 1/4 ln(4 / (3·2)) + 1/4 ln(4 / (1·2)).
    """
    assert mutual_information([("a", "x"), ("b", "y")] * 3) == pytest.approx(math.log(2))
    assert mutual_information([(a, b) for a in "abc" for b in "xy"]) == pytest.approx(0)
    expected = math.log(8 / 6) / 2 + math.log(4 / 6) / 4 + math.log(2) / 4
    assert mutual_information([("a", "x"), ("a", "x"), ("a", "y"), ("b", "y")]) == pytest.approx(expected)
    assert mutual_information([]) == 0


def pointing(places: list[int], n: int, *, sure: float = 0.8) -> Tensor:
    """(m, n): row i has most of its weight at places[i]."""
    rows = torch.full((len(places), n), (1 - sure) / n)
    rows[range(len(places)), places] += sure
    return rows


def synthetic(sentences: int = 40) -> tuple[list[dict[str, Tensor]], list[list[str]], list[list[str]], list[set]]:
    """A language whose words are those of the source in another order, and heads that see it more or less well.

    "a": head 0 is shifted by one, head 1 is the truth. "b": uniform and random. "c": two heads that each see
    half of it, and so their mean sees all of it.
    """
    draw = random.Random(3)
    maps, sources, targets, gold = [], [], [], []
    for _ in range(sentences):
        n = draw.randint(4, 9)
        source = [f"s{draw.randrange(25)}" for _ in range(n)]
        order = draw.sample(range(n), n)
        places = {"true": order, "shifted": [(j + 1) % n for j in order], "random": draw.choices(range(n), k=n)}
        heads = {name: pointing(place, n) for name, place in places.items()}
        flat = torch.full((n, n), 1 / n)
        # Each is wrong, but less surely, where the other one is right.
        half = torch.arange(n)[:, None] < n // 2
        wrong = pointing(places["shifted"], n, sure=0.3)
        first, second = torch.where(half, heads["true"], wrong), torch.where(half, wrong, heads["true"])
        maps.append({
            "a": torch.stack([heads["shifted"], heads["true"]]),
            "b": torch.stack([flat, heads["random"]]),
            "c": torch.stack([first, second]),
        })  # fmt: skip
        sources.append(source)
        targets.append([f"t{source[j][1:]}" for j in order])
        gold.append({(j, i) for i, j in enumerate(order)})
    return maps, sources, targets, gold


def only(maps: list[dict[str, Tensor]], *layers: str) -> list[dict[str, Tensor]]:
    return [{layer: sentence[layer] for layer in layers} for sentence in maps]


@pytest.mark.parametrize("supervised", [True, False])
def test_the_true_head_is_chosen(supervised: bool) -> None:
    maps, sources, targets, gold = synthetic()
    chosen = choose_alignment_head(only(maps, "b", "a"), sources, targets, gold if supervised else None)
    assert (chosen.layer, chosen.head) == ("a", 1)
    assert chosen.how == ("alignment error rate" if supervised else "mutual information in nats")
    if supervised:
        assert chosen.score == 0
    else:  # it points at the word that decides the target word: all of the target's entropy
        words = [word for target in targets for word in target]
        shares = [words.count(word) / len(words) for word in set(words)]
        assert chosen.score == pytest.approx(-sum(share * math.log(share) for share in shares))


@pytest.mark.parametrize("supervised", [True, False])
def test_the_mean_over_heads_is_chosen_where_it_is_better(supervised: bool) -> None:
    maps, sources, targets, gold = synthetic()
    chosen = choose_alignment_head(only(maps, "b", "c"), sources, targets, gold if supervised else None)
    assert (chosen.layer, chosen.head) == ("c", None)


@pytest.mark.parametrize("supervised", [True, False])
def test_each_wrong_head_loses_to_one_that_is_half_right(supervised: bool) -> None:
    maps, sources, targets, gold = synthetic()
    for layer, wrong in (("a", 0), ("b", 0), ("b", 1)):
        pair = [{"x": torch.stack([sentence[layer][wrong], sentence["c"][0]])} for sentence in maps]
        # Without the mean: two layers of one head each.
        single = [{"wrong": p["x"][:1], "half": p["x"][1:]} for p in pair]
        chosen = choose_alignment_head(single, sources, targets, gold if supervised else None)
        assert (chosen.layer, chosen.head) == ("half", 0)


def test_possible_links_count() -> None:
    """The shifted head finds nothing but possible links: an error of 1 - (0 + A) / (A + S)."""
    maps, sources, targets, _ = synthetic(5)
    shifted = [{"a": sentence["a"][:1]} for sentence in maps]
    found = [hard_alignment(sentence["a"][0]) for sentence in shifted]
    sure = [{(99, 99)}] * 5
    count = sum(map(len, found))
    chosen = choose_alignment_head(shifted, sources, targets, sure, found)
    assert chosen.score == pytest.approx(1 - count / (count + 5))
    assert chosen.to_dict() == {"layer": "a", "head": 0, "score": chosen.score, "how": "alignment error rate"}


def test_choose_errors() -> None:
    maps, sources, targets, gold = synthetic(2)
    with pytest.raises(ValueError, match="same length, at least 1; got 0, 0 and 0"):
        choose_alignment_head([], [], [])
    with pytest.raises(ValueError, match="got 2, 1 and 2"):
        choose_alignment_head(maps, sources[:1], targets)
    with pytest.raises(ValueError, match=r"sentence 1 has the layers \['a'\], but the first one \['a', 'b', 'c'\]"):
        choose_alignment_head([maps[0], only(maps, "a")[1]], sources, targets)
    with pytest.raises(ValueError, match=r"a of sentence 0 must be \(heads, "):
        choose_alignment_head(maps, [[*sources[0], "more"], sources[1]], targets)
    with pytest.raises(DataError, match="do not pair up"):
        choose_alignment_head(maps, sources, targets, gold[:1])
