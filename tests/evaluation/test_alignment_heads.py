"""The heads that align: languages whose right answer is known.

H heads   m target words   n source words
"""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from regard.errors import DataError
from regard.evaluation.alignment import hard_alignment
from regard.evaluation.alignment_heads import (
    AligningHead,
    choose_aligning_heads,
    choose_alignment_head,
    mean_weights,
    mutual_information,
    reading_steps,
)
from regard.text.tokenizers.special_tokens import END


def test_mutual_information_by_hand() -> None:
    """Each pair is predicted from the others: p(t | s) = (c(t, s) - 1 + p(t)) / c(s).

    c(a,x) = 2, c(a,y) = 1, c(b,y) = 1 of 4: p(a) = 3/4 and p(b) = 1/4, so the ratios p(t | s) / p(t) are
    (1 + 3/4) / 2 / (3/4) = 7/6, (3/4) / 2 / (3/4) = 1/2 and (1/4) / 2 / (1/4) = 1/2.
    """
    expected = math.log(7 / 6) / 2 + math.log(1 / 2) / 2
    assert mutual_information([("a", "x"), ("a", "x"), ("a", "y"), ("b", "y")]) == pytest.approx(expected)
    # Pairs that decide each other give the entropy, ln 2, if there are many of them.
    assert mutual_information([("a", "x"), ("b", "y")] * 1000) == pytest.approx(math.log(2), abs=1e-3)
    assert mutual_information([]) == 0


def test_pairs_that_occur_once_give_no_information() -> None:
    """Plain mutual information of n different pairs is ln n, as if each word predicted the other."""
    assert mutual_information([(f"t{i}", f"s{i}") for i in range(50)]) == pytest.approx(0)
    draw = random.Random(0)
    unrelated = [(draw.randrange(40), draw.randrange(40)) for _ in range(300)]
    assert mutual_information(unrelated) < 0


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
    assert chosen.how == ("alignment error rate" if supervised else "leave-one-out mutual information in nats")
    if supervised:
        assert chosen.score == 0
    else:  # it points at the word that decides the target word: nearly all of the target's entropy
        words = [word for target in targets for word in target]
        shares = [words.count(word) / len(words) for word in set(words)]
        entropy = -sum(share * math.log(share) for share in shares)
        assert 0.9 * entropy < chosen.score < entropy


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


def numbered(sentences: int = 60) -> tuple[list[dict[str, Tensor]], list[list[int]], list[list[int]]]:
    """The language of `synthetic` with numbers for words and END at the end of both sides.

    "late": head 0 points, one row too late, at the first half of the source words; head 1 at random. "now": head 0
    points at the second half, in time; head 1 is uniform. Where a head does not know, it spreads its weight.
    """
    draw = random.Random(5)
    maps, sources, targets = [], [], []
    for _ in range(sentences):
        n = draw.randint(4, 9)
        source = [10 + draw.randrange(25) for _ in range(n)]
        order = draw.sample(range(n), n)
        truth = pointing([*order, n], n + 1)
        flat = torch.full((n + 1, n + 1), 1 / (n + 1))
        first = torch.tensor([*order, n])[:, None] < n // 2
        late = torch.where(first, truth, flat).roll(1, 0)
        chance = pointing(draw.choices(range(n + 1), k=n + 1), n + 1)
        maps.append({
            "late": torch.stack([late, chance]),
            "now": torch.stack([torch.where(first, flat, truth), flat]),
        })  # fmt: skip
        sources.append([*source, END])
        targets.append([*(50 + source[j] for j in order), END])
    return maps, sources, targets


def test_heads_that_know_half_each_are_combined_at_their_steps() -> None:
    maps, sources, targets = numbered()
    heads = choose_aligning_heads(maps, sources, targets)
    assert set(heads) == {AligningHead("late", 0, shifted=True), AligningHead("now", 0)}
    for layers, source, target in zip(maps, sources, targets, strict=True):
        chosen = [layers[layer][head] for layer, head, _ in heads]
        links = hard_alignment(mean_weights(chosen, [head.shifted for head in heads], target)[:-1, :-1])
        assert all(target[i] == 50 + source[j] for j, i in links)


def test_a_single_head_that_knows_everything_stays_alone() -> None:
    maps, sources, targets = numbered()
    true = [
        {"a": torch.stack([pointing([source.index(word - 50) for word in target[:-1]] + [len(source) - 1], len(source)),
                           layers["late"][1]])}
        for layers, source, target in zip(maps, sources, targets, strict=True)
    ]  # fmt: skip
    assert choose_aligning_heads(true, sources, targets) == [AligningHead("a", 0)]


def test_a_token_is_read_one_step_after_it_is_written() -> None:
    """The last token is read by no step; an end token inside belongs to a part of a long text, and so does its row."""
    assert reading_steps([5, 6, END]) == [1, 2, 2]
    assert reading_steps([5, 6, END, 7, END]) == [1, 2, 2, 4, 4]
    assert reading_steps([5, 6]) == [1, 1]  # truncated
    first, second = torch.rand(2, 3, 4)
    expected = (first[[1, 2, 2]] + second) / 2
    torch.testing.assert_close(mean_weights([first, second], [True, False], [5, 6, END]), expected)
