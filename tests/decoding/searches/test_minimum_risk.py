"""Minimum risk: every pair compared by a plain loop, and the overlap against sacreBLEU's chrF."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.logit_rules import MinTokens
from regard.decoding.searches.minimum_risk import MinimumRisk, overlap
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END

from ...repeats import some

tokens = st.lists(st.integers(4, 7), max_size=9)
some_models = pytest.mark.parametrize("name", ["transformer modern", "luong", "lstm lm"])


@given(tokens, tokens)
def test_overlap_is_chrf_over_tokens(text: list[int], reference: list[int]) -> None:
    from sacrebleu.metrics import CHRF

    as_letters = ["".join(chr(ord("a") + token) for token in tokens) for tokens in (text, reference)]
    want = CHRF(char_order=4, beta=2).sentence_score(as_letters[0], [as_letters[1]]).score / 100
    assert overlap(text, reference) == pytest.approx(want if text or reference else 1.0)


def test_overlap_by_hand() -> None:
    """5 6 7 in 5 6: precision (2/3 + 1/2) / 2, recall 1."""
    precision = (2 / 3 + 1 / 2) / 2
    assert overlap([5, 6, 7], [5, 6]) == pytest.approx(5 * precision / (4 * precision + 1))
    assert overlap([5, 6], [5, 6]) == 1.0 and overlap([4], [5]) == 0.0
    assert overlap([], []) == 1.0 and overlap([], [4]) == overlap([4], []) == 0.0


def same_length(text: Sequence[int], reference: Sequence[int]) -> float:
    return float(len(text) == len(reference)) - 0.01 * len(text)


@some_models
@pytest.mark.parametrize("utility", some([overlap, same_length], 2))
@pytest.mark.parametrize("inner", [Sample(temperature=1.3, seed=2), Beam(6)], ids=["samples", "beam"])
def test_against_the_naive_loop(make_case: Callable[[str], Any], name: str, inner: Any, utility: Any) -> None:
    """Each candidate against each, END left out; the first of equals wins."""
    case = make_case(name)
    options: dict[str, Any] = {"prefixes": case.prefixes, "max_tokens": 6}
    candidates = generate_tokens(case.model, case.source, search=inner, alternatives=6, **options)
    search = MinimumRisk(6, search=inner, utility=utility)
    found = generate_tokens(case.model, case.source, search=search, **options)
    for each, (one,) in zip(candidates, found, strict=True):
        texts = [[token for token in other.tokens if token != END] for other in each]
        means = [sum(utility(text, other) for other in texts) / len(texts) for text in texts]
        winner = each[max(range(len(means)), key=lambda i: (round(means[i], 9), -i))]
        assert one.tokens == winner.tokens and one.logps == winner.logps and one.score == winner.score
        assert one.ranking == pytest.approx(max(means))


def test_many_agree_against_the_most_probable(automaton_of: Callable[..., Any]) -> None:
    """By hand: the empty text is likeliest with p = 0.3, and 70% of all texts begin with 4 5."""
    model = automaton_of(
        {2: {3: 0.3, 4: 0.7}, 4: {5: 1.0}, 5: {1: 0.33, 4: 0.0, 6: 0.33, 3: 0.34}, 6: {3: 1.0}, 1: {3: 1.0}}
    )
    ((likeliest,),) = generate_tokens(model, None, prefixes=[[]], search=Beam(4, length_penalty=0), max_tokens=6)
    ((agreed,),) = generate_tokens(model, None, prefixes=[[]], search=MinimumRisk(64), max_tokens=6)
    assert likeliest.tokens == [END]
    assert agreed.tokens[:2] == [4, 5]


@some_models
def test_alternatives_differ_and_come_best_first(make_case: Callable[[str], Any], name: str) -> None:
    case = make_case(name)
    options: dict[str, Any] = {"prefixes": case.prefixes, "search": MinimumRisk(8), "max_tokens": 5}
    found = generate_tokens(case.model, case.source, alternatives=3, **options)
    for each in found:
        assert len({tuple(one.tokens) for one in each}) == len(each) <= 3
        assert [one.ranking for one in each] == sorted((one.ranking for one in each), reverse=True)
    first = generate_tokens(case.model, case.source, batch_tokens=1, **options)
    assert [one.tokens for (one,) in first] == [each[0].tokens for each in found]


def test_rules_and_constraints_reach_the_other_search(make_case: Callable[[str], Any]) -> None:
    case = make_case("transformer lm")
    ruled = MinimumRisk(4, search=Sample(rules=(MinTokens(6),)))
    assert all(
        len(one.tokens) == 6
        for (one,) in generate_tokens(case.model, None, prefixes=case.prefixes, search=ruled, max_tokens=6)
    )
    found = generate_tokens(
        case.model,
        None,
        prefixes=case.prefixes,
        constraints=[[[7, 8]]] * 7,
        search=MinimumRisk(4, search=Beam(4)),
        max_tokens=6,
    )
    assert all((7, 8) in zip(one.tokens, one.tokens[1:], strict=False) for (one,) in found)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: MinimumRisk(0), "candidates must be a whole number from 1, got 0"),
        (lambda model: MinimumRisk(2).rows(3), "alternatives=3 is more than candidates=2: ask for more candidates"),
        (lambda model: MinimumRisk(8, search=Beam(4)).rows(1), "a beam of width 4 cannot find alternatives=8"),
        (
            lambda model: stream_tokens(model, [4], search=MinimumRisk(2), max_tokens=3),
            "MinimumRisk does not know its first token before its last",
        ),
    ],
)
def test_mistakes_are_named(make_automaton: Callable[..., Any], ask: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask(make_automaton())
