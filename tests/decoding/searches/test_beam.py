"""Beam search against a naive one, against the best of all texts, and against another library's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.search import stable_topk
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, PAD, START

Scored = tuple[list[int], float]


def naive_beam(
    logps_after: Callable[[list[int]], list[float]],
    *,
    width: int,
    length_penalty: float,
    limit: int,
    most: float = math.inf,
) -> tuple[list[Scored], list[Scored]]:
    """Beam search as one would explain it: all continuations of all hypotheses, sorted.

    It goes on up to the limit, or until `most` hypotheses are finished.

    Gives all finished hypotheses, best ranking first, and those cut off at the limit, both with their scores.
    """
    live: list[Scored] = [([], 0.0)]
    finished: list[Scored] = []
    for _ in range(limit):
        candidates = []
        for text, score in live:
            logps = logps_after(text)
            candidates += [([*text, x], score + p) for x, p in enumerate(logps) if x not in (PAD, START)]
        candidates.sort(key=lambda one: -one[1])  # a stable sort: of equals the earlier parent, then the lower token
        finished += [one for one in candidates[:width] if one[0][-1] == END]
        live = [one for one in candidates if one[0][-1] != END][:width]
        if len(finished) >= most:
            break
    finished.sort(key=lambda one: -(one[1] / len(one[0]) ** length_penalty))
    return finished, live


def check(found: list[Any], expected: tuple[list[Scored], list[Scored]], wanted: int, penalty: float) -> None:
    finished, cut = expected
    texts = [(*one, True) for one in finished] + [(*one, False) for one in cut]
    assert [(one.tokens, one.finished) for one in found] == [(text, ended) for text, _, ended in texts[:wanted]]
    for one, (text, score, _) in zip(found, texts, strict=False):
        assert one.score == pytest.approx(score, abs=1e-9)
        assert one.ranking == pytest.approx(score / len(text) ** penalty, abs=1e-9)


PATIENCE = [(0.0, None, math.inf), (1.0, 1.0, 3), (0.0, 0.4, 1), (1.0, 2.0, 6)]
OTHER_PENALTY = [pytest.param(1.0 - penalty, *rest, marks=pytest.mark.slow) for penalty, *rest in PATIENCE]


@pytest.mark.parametrize(("penalty", "patience", "most"), [*PATIENCE, *OTHER_PENALTY])
@torch.no_grad()
def test_against_the_naive_search(case: Any, penalty: float, patience: float | None, most: float) -> None:
    """Patience counts finished hypotheses, unless several are wanted."""
    wanted = 2 if patience is None else 1
    rows = [0, 2, 4]
    search = Beam(3, length_penalty=penalty, patience=patience)
    given = case.inputs(rows)
    found = generate_tokens(case.model, given.pop("source"), **given, search=search, alternatives=wanted, max_tokens=6)
    for row, hypotheses in zip(rows, found, strict=True):
        expected = naive_beam(
            lambda text, row=row: case.logps(row, text).tolist(),
            width=3,
            length_penalty=penalty,
            limit=6,
            most=most,
        )
        check(hypotheses, expected, wanted, penalty)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 7),
    penalty=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    limit=st.integers(1, 8),
    sharp=st.sampled_from([0.5, 2.0, 4.0]),
    ties=st.booleans(),
    data=st.data(),
)
def test_any_automaton_against_the_naive_search(
    make_automaton: Callable[..., Any],
    seed: int,
    width: int,
    penalty: float,
    limit: int,
    sharp: float,
    ties: bool,
    data: Any,
) -> None:
    """The early stop is exact: the naive search never stops early. Equal scores come in the same order."""
    wanted = data.draw(st.integers(1, width))
    model = make_automaton(seed=seed, sharp=sharp)
    if ties:  # each state allows some tokens, all alike
        with torch.no_grad():
            model.table.copy_(torch.where(model.table > 0, 0.0, -60.0))
            model.table[:, END] = 0.0
    (found,) = generate_tokens(
        model,
        None,
        prefixes=[[]],
        search=Beam(width, length_penalty=penalty, patience=None),
        alternatives=wanted,
        max_tokens=limit,
    )
    check(found, naive_beam(model.reader(), width=width, length_penalty=penalty, limit=limit), wanted, penalty)


def best_of_all(after: Callable[[list[int]], list[float]], *, penalty: float, limit: int) -> Scored:
    """The finished text with the best ranking among all that there are: tokens 1, 4, 5, 6 and END."""
    ranked = []
    for length in range(limit):
        for body in itertools.product((1, 4, 5, 6), repeat=length):
            text = [*body, END]
            score = math.fsum(after(text[:i])[token] for i, token in enumerate(text))
            ranked.append((score / len(text) ** penalty, text, score))
    _, text, score = max(ranked)
    return text, score


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_the_best_of_all_texts(make_automaton: Callable[..., Any], seed: int, penalty: float) -> None:
    model = make_automaton(seed=seed, sharp=1.0)
    text, score = best_of_all(model.reader(), penalty=penalty, limit=5)
    search = Beam(4**5, length_penalty=penalty, patience=None)  # as many as there are texts without END
    ((one,),) = generate_tokens(model, None, prefixes=[[]], search=search, max_tokens=5)
    assert one.tokens == text
    assert one.score == pytest.approx(score)


def test_greedy_search_misses_what_a_beam_finds(automaton_of: Callable[..., Any]) -> None:
    """By hand: the better beginning leads to the worse text, 0.6 · 0.5 < 0.4 · 0.9."""
    model = automaton_of(
        {2: {4: 0.6, 5: 0.4}, 4: {3: 0.5, 6: 0.1, 1: 0.4}, 5: {3: 0.9, 6: 0.1}, 6: {6: 1.0}, 1: {1: 1.0}}
    )
    ((greedy,),) = generate_tokens(model, None, prefixes=[[]], max_tokens=4)
    assert greedy.tokens == [4, END] and math.exp(greedy.score) == pytest.approx(0.3)
    search = Beam(2, length_penalty=0.0)
    ((first, second),) = generate_tokens(model, None, prefixes=[[]], search=search, alternatives=2, max_tokens=4)
    assert (first.tokens, second.tokens) == ([5, END], [4, END])
    assert math.exp(first.score) == pytest.approx(0.36) and math.exp(second.score) == pytest.approx(0.3)
    assert first.ranking == first.score


def test_the_length_penalty_by_hand(automaton_of: Callable[..., Any]) -> None:
    """p = 0.5 for the text of one token, 0.36 for that of three, which log p / length prefers."""
    model = automaton_of({2: {3: 0.5, 4: 0.5}, 4: {5: 0.8, 6: 0.2}, 5: {3: 0.9, 6: 0.1}, 6: {6: 1.0}})
    for penalty, text, probability in ((0.0, [END], 0.5), (0.2, [END], 0.5), (1.0, [4, 5, END], 0.36)):
        search = Beam(2, length_penalty=penalty)
        ((one,),) = generate_tokens(model, None, prefixes=[[]], search=search, max_tokens=6)
        assert one.tokens == text
        assert one.ranking == pytest.approx(math.log(probability) / len(text) ** penalty)


def test_width_one_is_greedy_search(case: Any) -> None:
    """Without a length penalty: what ends can then not be overtaken by a longer text."""
    given = {"prefixes": case.prefixes, "max_tokens": 10}
    greedy = generate_tokens(case.model, case.source, search=Greedy(), **given)
    narrow = generate_tokens(case.model, case.source, search=Beam(1, length_penalty=0.0), **given)
    assert [one.tokens for (one,) in narrow] == [one.tokens for (one,) in greedy]
    assert [one.score for (one,) in narrow] == pytest.approx([one.score for (one,) in greedy], abs=1e-9)


def test_fewer_alternatives_are_the_first_of_more(case: Any) -> None:
    """The search stops earlier for fewer, and finds the same."""
    given = {"prefixes": case.prefixes, "search": Beam(4, patience=None), "max_tokens": 8}
    many = generate_tokens(case.model, case.source, alternatives=4, **given)
    for wanted in (1, 2, 3):
        few = generate_tokens(case.model, case.source, alternatives=wanted, **given)
        assert [[one.tokens for one in each] for each in few] == [
            [one.tokens for one in each[:wanted]] for each in many
        ]
    for each in many:
        assert len({tuple(one.tokens) for one in each}) == 4
        assert [one.finished for one in each] == sorted((one.finished for one in each), reverse=True)
        for ended in (True, False):
            rankings = [one.ranking for one in each if one.finished == ended]
            assert rankings == sorted(rankings, reverse=True)


def test_what_the_limit_cuts_off_comes_last(automaton_of: Callable[..., Any]) -> None:
    """However much better it looks."""
    model = automaton_of({2: {4: 0.9, 3: 0.1}, 4: {4: 0.99, 5: 0.01}, 5: {5: 1.0}})
    ((first, second),) = generate_tokens(model, None, prefixes=[[]], search=Beam(2), alternatives=2, max_tokens=5)
    assert (first.tokens, first.finished) == ([END], True)
    assert (second.tokens, second.finished) == ([4] * 5, False)
    assert second.ranking > first.ranking


def test_fewer_texts_than_slots(automaton_of: Callable[..., Any]) -> None:
    """Two texts in all, and a beam of six: empty slots are no hypotheses."""
    model = automaton_of({2: {4: 0.7, 3: 0.3}, 4: {3: 1.0}})
    model.project = lambda states: model.table[states].masked_fill(model.table[states] < -1e8, -torch.inf)
    model.table.data[[0, 1, 3, 5, 6]] = 0.0  # states that nobody comes to, but for what fills empty slots
    (found,) = generate_tokens(model, None, prefixes=[[]], search=Beam(6), alternatives=6, max_tokens=5)
    assert [(one.tokens, one.finished) for one in found] == [([4, END], True), ([END], True)]


def test_it_stops_as_soon_as_nothing_better_can_come(automaton_of: Callable[..., Any]) -> None:
    """[END] has p = 0.9, and the best that lives after t steps 0.1 · 0.9^(t - 1).

    Without a length penalty it has lost after one step. With 1 it could still come to 30 tokens at no further cost,
    so it has lost when (log 0.1 + (t - 1) log 0.9) / 30 <= log 0.9: t - 1 >= 8.15.
    """
    model = automaton_of({2: {3: 0.9, 4: 0.1}, 4: {4: 0.9, 5: 0.1}, 5: {5: 1.0}})
    steps: list[int] = []
    decode = model.decode
    model.decode = lambda tokens, **kwargs: (steps.append(1), decode(tokens, **kwargs))[1]
    for penalty, expected in ((0.0, 1), (1.0, 10)):
        steps.clear()
        search = Beam(1, length_penalty=penalty, patience=None)
        ((one,),) = generate_tokens(model, None, prefixes=[[]], search=search, max_tokens=30)
        assert one.tokens == [END]
        assert len(steps) == expected


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_against_transformers(make_automaton: Callable[..., Any], seed: int, penalty: float) -> None:
    """Another library's beam search on the same tables, told to stop only when nothing better can come."""
    import transformers

    model = make_automaton(seed=seed, sharp=1.5)
    # All texts end before the limit, where they rank what is cut off among the finished.
    model.to_state = to = (torch.arange(12)[:, None] + model.to_state % 3 + 1).clamp(max=11)
    table = model.table.detach()
    table[11, END] = 10.0

    class Tables(transformers.PreTrainedModel, transformers.GenerationMixin):
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.unused = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
            at = torch.zeros(len(input_ids), dtype=torch.long)
            for token in input_ids.unbind(1):
                at = to[at, token]
            return transformers.modeling_outputs.CausalLMOutput(logits=table[at][:, None])

        def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
            return {"input_ids": input_ids}

    theirs = Tables(transformers.PretrainedConfig(vocab_size=7)).generate(
        torch.tensor([[START]]),
        num_beams=4,
        num_return_sequences=2,
        max_new_tokens=30,
        early_stopping="never",
        length_penalty=penalty,
        do_sample=False,
        use_cache=False,
        eos_token_id=END,
        pad_token_id=PAD,
        output_scores=True,
        return_dict_in_generate=True,
    )
    (ours,) = generate_tokens(
        model, None, prefixes=[[]], search=Beam(4, length_penalty=penalty, patience=None), alternatives=2, max_tokens=30
    )
    assert all(one.finished for one in ours)
    for one, tokens, ranking in zip(ours, theirs.sequences.tolist(), theirs.sequences_scores.tolist(), strict=True):
        assert one.tokens == tokens[1 : tokens.index(END) + 1]
        assert one.ranking == pytest.approx(ranking, abs=1e-5)


@given(
    rows=st.integers(1, 4),
    places=st.integers(1, 30),
    levels=st.integers(1, 12),
    k=st.integers(1, 30),
    seed=st.integers(0, 10**6),
)
def test_the_best_of_a_row_and_its_equals(rows: int, places: int, levels: int, k: int, seed: int) -> None:
    """Against Python's stable sort, on numbers of which many are equal."""
    k = min(k, places)
    scores = torch.randint(levels, (rows, places), generator=torch.Generator().manual_seed(seed)).double()
    values, at = stable_topk(scores, k)
    for row in range(rows):
        want = sorted(range(places), key=lambda place, row=row: -scores[row, place].item())[:k]
        assert at[row].tolist() == want
        assert values[row].tolist() == scores[row, want].tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1, got 0"),
        ({"width": 2.5}, "width must be a whole number from 1, got 2.5"),
        ({"width": True}, "width must be a whole number from 1, got True"),
        ({"length_penalty": -0.5}, "length_penalty must be a number from 0 to 10, got -0.5"),
        ({"length_penalty": math.inf}, "length_penalty must be a number from 0 to 10, got inf"),
        ({"length_penalty": 1e300}, r"length_penalty must be a number from 0 to 10, got 1e\+300"),
        ({"length_penalty": math.nan}, "length_penalty must be a number from 0 to 10, got nan"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Beam(**settings)


def test_settings_in_order() -> None:
    assert Beam(4) == Beam(width=4, length_penalty=1.0)
