"""Speculative decoding: the large model's text with greedy search, its distribution with sampling, in fewer passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from regard.decoding.engine import generate_tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat, RepetitionPenalty
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis
from regard.decoding.searches.speculative import Speculative
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END

GREEDY = Greedy()
TRANSLATORS = ["transformer", "transformer modern", "luong", "sutskever"]
WRITERS = ["transformer lm", "transformer lm modern", "rnn lm", "lstm lm"]
pairs = st.sampled_from([(a, b) for names in (TRANSLATORS, WRITERS) for a in names for b in names])


def speculate_tokens(
    model: Any, draft: Any, source: Any, *, search: Any = GREEDY, ahead: int = 4, **options: Any
) -> list[Hypothesis]:
    found = generate_tokens(model, source, search=Speculative(draft, search, ahead), **options)
    return [text for (text,) in found]


@settings(max_examples=10)
@given(
    names=pairs,
    ahead=st.integers(1, 6),
    limits=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    rules=st.sampled_from([(), (MinTokens(4), NoRepeat(2), RepetitionPenalty(1.5))]),
)
def test_greedy_search_finds_the_same(
    make_case: Callable[[str], Any], names: tuple[str, str], ahead: int, limits: list[int], rules: Any
) -> None:
    """Any model and any draft, itself and strangers, recurrent or not."""
    case, draft = make_case(names[0]), make_case(names[1])
    options: dict[str, Any] = {**case.inputs(range(4)), "search": Greedy(rules), "max_tokens": limits}
    want = [one for (one,) in generate_tokens(case.model, **options)]
    got = speculate_tokens(case.model, draft.model, ahead=ahead, **options)
    assert [(one.tokens, one.finished) for one in got] == [(one.tokens, one.finished) for one in want]
    for one, other in zip(got, want, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-9)


def test_after_a_prefix(make_case: Callable[[str], Any]) -> None:
    case, draft = make_case("transformer modern"), make_case("luong")
    options: dict[str, Any] = {"prefixes": [[5], [6, 7, 8], [], [5, 5], [8, 4], [7], [4]], "max_tokens": 8}
    want = generate_tokens(case.model, case.source, **options)
    got = speculate_tokens(case.model, draft.model, case.source, **options)
    assert [one.tokens for one in got] == [one.tokens for (one,) in want]


def chances_of_texts(model: Any, search: Sample, limit: int) -> dict[tuple[int, ...], float]:
    """The probability of each text of an automaton, from its tables."""
    texts = {}
    open_texts: list[tuple[tuple[int, ...], int, float]] = [((), int(model.to_state[0, 2]), 1.0)]
    while open_texts:
        text, state, p = open_texts.pop()
        for token, share in enumerate(search.probabilities(model.table[state : state + 1].detach())[0].tolist()):
            if share > 0:
                longer = ((*text, token), int(model.to_state[state, token]), p * share)
                if token == END or len(longer[0]) == limit:
                    texts[longer[0]] = longer[2]
                else:
                    open_texts.append(longer)
    return texts


@pytest.mark.parametrize(("search", "ahead"), [(Sample(seed=1), 3), (Sample(temperature=0.7, top_k=3, seed=2), 1)])
def test_samples_follow_the_large_model(make_automaton: Callable[..., Any], search: Sample, ahead: int) -> None:
    """1000 texts of up to 3 tokens counted, with a draft that thinks quite differently: chi-square at 1 in 1000."""
    model, draft = Tables(make_automaton(seed=5, sharp=1.0)), Tables(make_automaton(seed=6, sharp=1.0))
    found = speculate_tokens(
        model, draft, None, search=search, prefixes=[[]] * 1000, max_tokens=3, ahead=ahead, allow_unknown=False
    )
    model.table.data[:, [0, 1, 2]] = -torch.inf
    draft.table.data[:, [0, 1, 2]] = -torch.inf
    assert chi_square(found, chances_of_texts(model, search, 3)) < 1
    assert chi_square(found, chances_of_texts(draft, search, 3)) > 3  # the count can tell the two


def chi_square(found: list[Hypothesis], chances: dict[tuple[int, ...], float]) -> float:
    """Over what a true one passes once in 1000 (Wilson and Hilferty); texts expected less than 5 times are one."""
    counts = Counter(tuple(one.tokens) for one in found)
    expected = {text: p * len(found) for text, p in chances.items()}
    common = [text for text, number in expected.items() if number >= 5]
    cells = [(counts[text], expected[text]) for text in common]
    cells.append((len(found) - sum(a for a, _ in cells), max(len(found) - sum(b for _, b in cells), 1e-9)))
    degrees = len(cells) - 1
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3
    return sum((a - b) ** 2 / b for a, b in cells) / limit


class Tables(torch.nn.Module):
    """An automaton with a vocabulary in its config and a state that can be copied."""

    def __init__(self, automaton: Any) -> None:
        super().__init__()
        self.table, self.to_state = automaton.table, automaton.to_state
        self.decode, self.project, self.start = automaton.decode, automaton.project, automaton.start
        self.config = self

    pad_id, vocabulary = 0, 7


def test_samples_have_the_models_own_scores(make_case: Callable[[str], Any]) -> None:
    case, draft = make_case("transformer"), make_case("bahdanau")
    search = Sample(temperature=1.5, seed=3)
    found = speculate_tokens(case.model, draft.model, case.source, search=search, max_tokens=8)
    scored = score_tokens(case.model, case.source, [one.tokens for one in found])
    assert [one.score for one in found] == pytest.approx([one.score for one in scored], abs=1e-9)
    again = speculate_tokens(case.model, draft.model, case.source, search=search, max_tokens=8)
    other = speculate_tokens(case.model, draft.model, case.source, search=Sample(temperature=1.5, seed=4), max_tokens=8)
    assert again == found and other != found


@pytest.mark.parametrize("name", ["transformer lm", "lstm lm"])
@pytest.mark.parametrize(
    "search", [Greedy((MinTokens(12),)), Sample(seed=3, rules=(MinTokens(12),))], ids=["greedy", "sample"]
)
def test_a_draft_that_is_always_right_saves_passes(make_case: Callable[[str], Any], name: str, search: Any) -> None:
    """The model as its own draft: each pass gives three guesses and one token more."""
    case, draft = make_case(name), make_case(name)
    passes: list[int] = []
    decode = case.model.decode
    case.model.decode = lambda tokens, **kwargs: (passes.append(tokens.shape[1]), decode(tokens, **kwargs))[1]
    (one,) = speculate_tokens(case.model, draft.model, None, prefixes=[[5, 6]], search=search, max_tokens=12, ahead=3)
    assert len(one.tokens) == 12
    assert passes == [5, 4, 4]  # the prompt and three guesses; then the token before them and three more


def test_models_are_left_as_they_were(make_case: Callable[[str], Any]) -> None:
    case, draft = make_case("transformer"), make_case("luong")
    want = speculate_tokens(case.model, draft.model, case.source, max_tokens=5)
    case.model.train()
    draft.model.train()
    assert speculate_tokens(case.model, draft.model, case.source, max_tokens=5) == want
    assert case.model.training and draft.model.training


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"search": Beam(2)}, "only Greedy and Sample can use a draft, got Beam"),
        ({"ahead": 0}, "ahead must be a whole number from 1, got 0"),
        ({"draft": "rnn lm"}, "the same vocabularies, and vocabulary is None and 9"),
        ({"draft": "ensemble"}, "speculative decoding takes single models"),
        ({"draft": "transformer learned", "max_tokens": 30}, "max_tokens=30 for input 0 is too much"),
    ],
)
def test_mistakes_are_named(make_case: Callable[[str], Any], change: dict[str, Any], message: str) -> None:
    case = make_case("transformer")
    options = {"max_tokens": 4, "draft": "luong", **change}
    name = options.pop("draft")
    draft = Ensemble([case.model]) if name == "ensemble" else make_case(name).model
    with pytest.raises(UsageError, match=message):
        speculate_tokens(case.model, draft, case.source, **options)


def test_without_a_draft_where_it_cannot_help(make_case: Callable[[str], Any]) -> None:
    """Bars against repetition and observers need the plain search, which finds the same text."""
    case = make_case("transformer")
    search, options = Speculative(make_case("luong").model), {"max_tokens": 8, "allow_nonsense": False}
    want = generate_tokens(case.model, case.source, **options)
    assert generate_tokens(case.model, case.source, search=search, **options) == want
    with pytest.raises(UsageError, match="finds one text, and alternatives=2"):
        generate_tokens(case.model, case.source, search=search, max_tokens=8, alternatives=2)
