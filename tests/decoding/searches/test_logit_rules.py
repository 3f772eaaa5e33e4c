"""Rules: by hand, against another library's, and in every search; what is reported stays the model's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.forced import score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat, RepetitionPenalty, apply_rules
from regard.decoding.searches.observer import Recorder
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START

RULES = (MinTokens(3), RepetitionPenalty(1.7), NoRepeat(2))
SEARCHES = [Greedy(RULES), Sample(temperature=1.4, seed=5, rules=RULES), Beam(3, rules=RULES)]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)


def naive_rules(logps: list[float], text: list[int], written: int) -> list[float]:
    """The three rules, token by token."""
    changed = list(logps)
    for token in range(len(logps)):
        if token in text:
            changed[token] *= 1.7
        if text and (text[-1], token) in itertools.pairwise(text):
            changed[token] = -math.inf
        if token == END and written < 3:
            changed[token] = -math.inf
    return changed if max(changed) > -math.inf else [*changed[:END], logps[END], *changed[END + 1 :]]


@settings(max_examples=40)
@given(
    texts=st.integers(1, 9).flatmap(
        lambda length: st.lists(st.lists(st.integers(2, 7), min_size=length, max_size=length), min_size=1, max_size=4)
    ),
    length=st.integers(1, 4),
    penalty=st.floats(1.0, 3.0),
    seed=st.integers(0, 1000),
)
def test_against_transformers(texts: list[list[int]], length: int, penalty: float, seed: int) -> None:
    from transformers.generation import logits_process as theirs

    logps = torch.randn(len(texts), 8, generator=torch.Generator().manual_seed(seed)).double().log_softmax(-1)
    ids = torch.tensor(texts)
    for rule, other in (
        (RepetitionPenalty(penalty), theirs.RepetitionPenaltyLogitsProcessor(penalty)),
        (NoRepeat(length), theirs.NoRepeatNGramLogitsProcessor(length)),
        (MinTokens(length), theirs.MinNewTokensLengthLogitsProcessor(1, length, END, device="cpu")),
    ):
        rule(got := logps.clone(), ids, ids.shape[1] - 1)
        torch.testing.assert_close(got, other(ids, logps.clone()))


def test_where_nothing_is_left_the_text_may_end() -> None:
    def bar_all(logps: Tensor, text: Tensor, written: int) -> None:
        logps[0] = -math.inf

    logps = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]]).log()
    changed = apply_rules([bar_all], logps, torch.tensor([[2], [2]]), torch.empty(2, 0, dtype=torch.long))
    assert changed[0].tolist() == [-math.inf, -math.inf, -math.inf, logps[0, END].item()]
    assert torch.equal(changed[1], logps[1])


def after(case: Any, row: int, text: list[int]) -> tuple[list[float], list[float]]:
    """What follows a text, by the model and after the rules."""
    own = case.logps(row, text)
    own[[PAD, START]] = -math.inf
    prompt = [START] if case.translates else case.prefixes[row] or [START]
    return own.tolist(), naive_rules(own.tolist(), [*prompt, *text], len(text))


@torch.no_grad()
def test_greedy_against_the_naive_loop(case: Any) -> None:
    found = generate_tokens(case.model, case.source, prefixes=case.prefixes, search=Greedy(RULES), max_tokens=8)
    for row, (one,) in enumerate(found):
        text: list[int] = []
        logps: list[float] = []
        while len(text) < 8 and END not in text:
            own, ruled = after(case, row, text)
            token = max(range(len(ruled)), key=ruled.__getitem__)
            text.append(token)
            logps.append(own[token])
        assert one.tokens == text
        assert one.logps == pytest.approx(logps, abs=1e-9) and one.ranking == one.score


@torch.no_grad()
def test_a_beam_against_the_naive_one(case: Any) -> None:
    """It goes by the sum of what the rules left, and so does `ranking`; the score is the model's own."""
    for row in (0, 4):
        (found,) = generate_tokens(
            case.model, **case.inputs([row]), search=Beam(3, rules=RULES, patience=None), alternatives=2, max_tokens=6
        )
        live: list[tuple[list[int], float, float]] = [([], 0.0, 0.0)]  # tokens, sum after the rules, sum of the model
        finished = []
        for _ in range(6):
            candidates = []
            for text, ruled_sum, own_sum in live:
                own, ruled = after(case, row, text)
                candidates += [([*text, x], ruled_sum + ruled[x], own_sum + own[x]) for x in range(9)]
            candidates.sort(key=lambda one: -one[1])
            finished += [one for one in candidates[:3] if one[0][-1] == END and one[1] > -math.inf]
            live = [one for one in candidates if one[0][-1] != END and one[1] > -math.inf][:3]
        want = [*sorted(finished, key=lambda one: -one[1] / len(one[0])), *live]
        for one, (text, ruled_sum, own_sum) in zip(found, want, strict=False):
            assert one.tokens == text
            assert one.score == pytest.approx(own_sum, abs=1e-9)
            assert one.ranking == pytest.approx(ruled_sum / len(text), abs=1e-9)


@every_search
def test_every_search_obeys_and_reports_the_model(case: Any, search: Any) -> None:
    prefixes = [[5], [6, 7], [8], [4, 4, 4], [7, 6], [5, 5], [4]]
    options: dict[str, Any] = {"prefixes": prefixes, "search": search, "max_tokens": 9}
    found = [one for (one,) in generate_tokens(case.model, case.source, **options)]
    for one, prefix in zip(found, prefixes, strict=True):
        assert len(one.tokens) > 3 or END not in one.tokens
        whole = [*prefix, *one.tokens]
        for end in range(len(prefix) + 1, len(whole) + 1):
            *before, last = itertools.pairwise(whole[:end])
            assert last not in before or last[1] == END  # which is there where nothing else is left
    scored = score_tokens(case.model, case.source, [one.tokens for one in found], prefixes=prefixes)
    assert [one.score for one in found] == pytest.approx([one.score for one in scored], abs=1e-9)
    # Rows that leave, and batches of any size, take their texts along.
    again = generate_tokens(case.model, case.source, **options, batch_tokens=60)
    assert [one.tokens for (one,) in again] == [one.tokens for one in found]


@pytest.mark.parametrize("search", SEARCHES[:2], ids=["Greedy", "Sample"])
def test_streaming_obeys_too(make_case: Callable[[str], Any], search: Any) -> None:
    case = make_case("transformer lm")
    for prompt in case.prefixes:
        ((want,),) = generate_tokens(case.model, None, prefixes=[prompt], search=search, max_tokens=8)
        assert [*stream_tokens(case.model, prompt, search=search, max_tokens=8)] == want.tokens


def test_just_so_many_tokens(case: Any) -> None:
    """What a benchmark wants: END barred up to the limit."""
    for search in (Greedy((MinTokens(7),)), Beam(2, rules=(MinTokens(7),)), Sample(rules=(MinTokens(7),))):
        found = generate_tokens(case.model, case.source, prefixes=case.prefixes, search=search, max_tokens=7)
        assert all(len(one.tokens) == 7 and END not in one.tokens for (one,) in found)


def test_rules_that_change_nothing(case: Any) -> None:
    nothing = (MinTokens(0), RepetitionPenalty(1.0), NoRepeat(99))
    for plain, ruled in ((Greedy(), Greedy(nothing)), (Beam(3), Beam(3, rules=nothing))):
        want, got = (
            generate_tokens(case.model, case.source, prefixes=case.prefixes, search=search, max_tokens=6)
            for search in (plain, ruled)
        )
        assert got == want


def test_whoever_watches_sees_what_is_barred(make_case: Callable[[str], Any]) -> None:
    case = make_case("bahdanau")
    watched = Recorder(9)
    generate_tokens(case.model, case.source, search=Greedy((MinTokens(9),)), max_tokens=2, observer=watched)
    for record in watched.records:
        barred = record.scores == -math.inf
        assert torch.equal(barred, (record.tokens == END) | (record.tokens == PAD) | (record.tokens == START))
        assert torch.equal(record.logps == -math.inf, barred)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MinTokens(-1), "the minimum number of tokens must be an integer of at least 0, got -1"),
        (lambda: MinTokens(True), "the minimum number of tokens must be an integer of at least 0, got True"),
        (lambda: RepetitionPenalty(0.9), "a repetition penalty must be a number from 1, got 0.9"),
        (lambda: RepetitionPenalty(math.nan), "a repetition penalty must be a number from 1, got nan"),
        (lambda: NoRepeat(0), "the length of a phrase must be a whole number from 1, got 0"),
    ],
)
def test_wrong_settings(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
