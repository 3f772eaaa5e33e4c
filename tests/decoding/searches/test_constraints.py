"""Phrases that must come: a naive search and all texts there are as oracles, and every phrase in every result."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from regard.decoding.engine import generate_tokens
from regard.decoding.forced import score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.constraints import needed_phrases
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat
from regard.decoding.searches.observer import Recorder
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START

Scored = tuple[list[int], float]
phrases_of_words = st.lists(st.lists(st.integers(4, 6), min_size=1, max_size=3), max_size=3)


def holds(text: list[int], phrase: list[int]) -> bool:
    return any(text[i : i + len(phrase)] == phrase for i in range(len(text)))


def missing(text: list[int], phrases: list[list[int]]) -> int:
    """Tokens of the phrases that are not there, but for the longest one that the text has begun at its end."""
    open_phrases = [phrase for phrase in phrases if not holds(text, phrase)]
    begun = [k for phrase in open_phrases for k in range(1, len(phrase)) if text[-k:] == phrase[:k]]
    return sum(map(len, open_phrases)) - max(begun, default=0)


def naive_search(
    after: Callable[[list[int]], list[float]], phrases: list[list[int]], *, width: int, penalty: float, limit: int
) -> tuple[list[Scored], list[Scored]]:
    """Post and Vilar's search as one would explain it: all continuations in banks, taken in turns, up to the limit."""
    live: list[Scored] = [([], 0.0)]
    finished: list[Scored] = []
    for _ in range(limit):
        candidates = []
        for text, score in live:
            for token, logp in enumerate(after(text)):
                new = [*text, token]
                if token == END:
                    allowed = missing(text, phrases) == 0
                else:
                    allowed = token not in (PAD, START) and missing(new, phrases) <= limit - len(new)
                if allowed:
                    candidates.append((new, score + logp))
        banks: dict[int, list[Scored]] = {}
        for one in sorted(candidates, key=lambda one: -one[1]):
            banks.setdefault(missing(one[0], phrases), []).append(one)
        turns = itertools.zip_longest(*(banks[number] for number in sorted(banks)))
        order = [one for turn in turns for one in turn if one is not None]
        finished += [one for one in order[:width] if one[0][-1] == END]
        live = [one for one in order if one[0][-1] != END][:width]
    finished.sort(key=lambda one: -(one[1] / len(one[0]) ** penalty))
    return finished, live


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    phrases=phrases_of_words,
    width=st.integers(1, 6),
    penalty=st.sampled_from([0.0, 1.0]),
    more=st.integers(0, 4),
    wanted=st.integers(1, 6),
)
@example(seed=1, phrases=[[4, 5, 6], [5, 6, 4]], width=3, penalty=1.0, more=0, wanted=3)
@example(seed=469, phrases=[[6, 5]], width=2, penalty=0.0, more=4, wanted=1)  # the best comes from behind
@example(seed=1057, phrases=[[5, 4]], width=3, penalty=1.0, more=4, wanted=1)
@example(seed=0, phrases=[[4, 4, 4], [4, 4, 6]], width=1, penalty=1.0, more=1, wanted=1)  # the second to end is better
def test_against_the_naive_search(
    make_automaton: Callable[..., Any],
    seed: int,
    phrases: list[list[int]],
    width: int,
    penalty: float,
    more: int,
    wanted: int,
) -> None:
    """Without patience the early stop is exact here too: the naive search never stops early."""
    model, wanted = make_automaton(seed=seed), min(wanted, width)
    needed = [list(phrase) for phrase in needed_phrases(phrases, 99)]
    limit = max(1, sum(map(len, needed)) + more)
    search = Beam(width, length_penalty=penalty, patience=None)
    (found,) = generate_tokens(
        model, None, prefixes=[[]], search=search, constraints=[phrases], alternatives=wanted, max_tokens=limit
    )
    finished, cut = naive_search(model.reader(), needed, width=width, penalty=penalty, limit=limit)
    want = [(*one, True) for one in finished] + [(*one, False) for one in cut]
    assert [(one.tokens, one.finished) for one in found] == [(text, ended) for text, _, ended in want[:wanted]]
    for one, (_, score, _) in zip(found, want, strict=False):
        assert one.score == pytest.approx(score, abs=1e-9)
        assert all(holds(one.tokens, phrase) for phrase in phrases)


@pytest.mark.parametrize("phrases", [[[6]], [[4, 4], [5]], [[5, 6], [6, 4]], [[5, 6, 5]]])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_best_of_all_texts(
    make_automaton: Callable[..., Any], seed: int, phrases: list[list[int]]
) -> None:
    model = make_automaton(seed=seed, sharp=1.0)
    after = model.reader()
    ranked = []
    for length in range(6):
        for body in itertools.product((1, 4, 5, 6), repeat=length):
            if all(holds([*body], phrase) for phrase in phrases):
                text = [*body, END]
                ranked.append((math.fsum(after(text[:i])[token] for i, token in enumerate(text)) / len(text), text))
    # All that there are, but for the last step, in which texts only end.
    ((one,),) = generate_tokens(model, None, prefixes=[[]], search=Beam(4**5), constraints=[phrases], max_tokens=6)
    assert one.finished and one.tokens == max(ranked)[1]
    assert one.ranking == pytest.approx(max(ranked)[0])


def test_all_models_in_any_batch(case: Any) -> None:
    """Different phrases side by side, some inputs without; the score is the model's own of that text."""
    constraints = [[[5, 6]], [], [[8], [4, 7]], [[7, 7, 7]], [], [[4], [5], [6]], [[6, 8], [8, 6]]]
    options: dict[str, Any] = {"prefixes": case.prefixes, "search": Beam(4), "alternatives": 2, "max_tokens": 9}
    found = generate_tokens(case.model, case.source, constraints=constraints, **options)
    free = generate_tokens(case.model, case.source, **options)
    for row, (each, phrases) in enumerate(zip(found, constraints, strict=True)):
        assert len(each) == 2 and all(holds(one.tokens, phrase) for one in each for phrase in phrases)
        if not phrases:
            assert [one.tokens for one in each] == [one.tokens for one in free[row]]
    again = generate_tokens(case.model, case.source, constraints=constraints, batch_tokens=150, **options)
    assert [[one.tokens for one in each] for each in again] == [[one.tokens for one in each] for each in found]
    best = [each[0] for each in found]
    scored = score_tokens(case.model, case.source, [one.tokens for one in best], prefixes=case.prefixes)
    assert [one.score for one in best] == pytest.approx([one.score for one in scored], abs=1e-9)


def test_nothing_wanted_is_a_plain_beam(case: Any) -> None:
    options: dict[str, Any] = {"prefixes": case.prefixes, "search": Beam(3), "alternatives": 3, "max_tokens": 6}
    plain = generate_tokens(case.model, case.source, **options)
    nothing: list[list[list[int]]] = [[] for _ in plain]
    assert generate_tokens(case.model, case.source, constraints=nothing, **options) == plain


def test_an_unlikely_phrase_stands_where_it_fits(automaton_of: Callable[..., Any]) -> None:
    """By hand: 6 has p = 0.1 after 4 and 0.01 elsewhere. It is neither pushed to the front nor to the end."""
    model = automaton_of(
        {
            2: {5: 0.9, 4: 0.09, 6: 0.01},
            5: {4: 0.98, 5: 0.01, 6: 0.01},
            4: {3: 0.9, 6: 0.1},
            6: {3: 0.99, 6: 0.01},
        }
    )
    ((one,),) = generate_tokens(model, None, prefixes=[[]], search=Beam(2), constraints=[[[6]]], max_tokens=6)
    assert one.tokens == [5, 4, 6, END]
    assert math.exp(one.score) == pytest.approx(0.9 * 0.98 * 0.1 * 0.99)


@given(seed=st.integers(0, 1000), phrases=phrases_of_words.filter(bool), width=st.integers(1, 4))
def test_phrases_are_stronger_than_rules(
    make_automaton: Callable[..., Any], seed: int, phrases: list[list[int]], width: int
) -> None:
    search = Beam(width, rules=(NoRepeat(1), MinTokens(2)))
    (found,) = generate_tokens(
        make_automaton(seed=seed), None, prefixes=[[4]], search=search, constraints=[phrases], max_tokens=10
    )
    assert all(holds(found[0].tokens, phrase) for phrase in phrases)


def test_the_story_of_the_search(make_automaton: Callable[..., Any]) -> None:
    """The records lead to the text that was found."""
    watched = Recorder()
    ((one,),) = generate_tokens(
        make_automaton(seed=3),
        None,
        prefixes=[[]],
        search=Beam(3),
        constraints=[[[6, 6], [4]]],
        max_tokens=7,
        observer=watched,
    )
    slots: dict[int, list[int]] = {0: []}
    told = []
    for record in watched.records:
        texts = [
            [*slots.get(parent, []), token]
            for parent, token in zip(record.parents[0].tolist(), record.tokens[0].tolist(), strict=True)
        ]
        told += [texts[c] for c in record.ended[0].nonzero()[:, 0].tolist()]
        slots = {slot: texts[c] for slot, c in enumerate(record.kept[0].tolist()) if c >= 0}
    assert one.tokens in (told if one.finished else slots.values())


def test_what_is_needed() -> None:
    assert needed_phrases([[5], [4, 5, 6], [5, 6], [7], [7]], 4) == [[4, 5, 6], [7]]
    assert needed_phrases([], 0) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": [[[5, 6], [7]]], "max_tokens": 2}, "constraints of 3 tokens do not fit into max_tokens=2"),
        ({"constraints": [[[]]]}, r"a constraint must be a list of tokens, none of them a special one, got \[\]"),
        ({"constraints": [[[5, END]]]}, r"none of them a special one, got \[5, 3\]"),
        ({"constraints": [[], []]}, "constraints has 2 entries for 1 inputs"),
        ({"constraints": [[[5]]], "search": Greedy()}, "constraints need beam search: pass search=Beam"),
        ({"constraints": [[[5]]], "search": Sample()}, "constraints need beam search: pass search=Beam"),
    ],
)
def test_mistakes_are_named(make_automaton: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    options = {"search": Beam(2), "max_tokens": 5, **options}
    with pytest.raises(UsageError, match=message):
        generate_tokens(make_automaton(), None, prefixes=[[]], **options)
