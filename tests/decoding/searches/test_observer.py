"""Whoever watches a search can tell it again: from the records alone come the tree and the texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.observer import Recorder, StepRecord
from regard.decoding.searches.sample import Sample, uniform
from regard.text.tokenizers.special_tokens import END

from ...repeats import some

Path = tuple[list[int], list[float], float]  # tokens, their log-probabilities, and the score told with the last


def retell(records: list[StepRecord]) -> dict[tuple[int, int], tuple[list[Path], list[Path]]]:
    """The finished and the cut off texts of each (input, alternative), in the order in which they came up."""
    live: dict[tuple[int, int], dict[int, Path]] = {}
    told: dict[tuple[int, int], tuple[list[Path], list[Path]]] = {}
    for record in records:
        for g, key in enumerate(zip(record.inputs.tolist(), record.alternatives.tolist(), strict=True)):
            slots = live.get(key, {0: ([], [], 0.0)})
            assert all(len(tokens) == record.step for tokens, _, _ in slots.values())

            def extended(c: int, g: int = g, record: StepRecord = record, slots: dict[int, Path] = slots) -> Path:
                tokens, logps, _ = slots[int(record.parents[g, c])]
                token, logp, score = (x[g, c].item() for x in (record.tokens, record.logps, record.scores))
                return [*tokens, token], [*logps, logp], score

            ended, cut = told.setdefault(key, ([], []))
            ended += [extended(c) for c in record.ended[g].nonzero()[:, 0].tolist()]
            live[key] = {slot: extended(c) for slot, c in enumerate(record.kept[g].tolist()) if c >= 0}
            if record.done[g]:
                cut += live.pop(key).values()
    assert not live  # everything came to its end
    return told


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_retold(case: Any, penalty: float) -> None:
    watched = Recorder()
    given = {"prefixes": case.prefixes, "search": Beam(3, length_penalty=penalty), "alternatives": 3, "max_tokens": 7}
    found = generate_tokens(case.model, case.source, observer=watched, **given)
    told = retell(watched.records)
    assert set(told) == {(number, 0) for number in range(7)}
    for number, hypotheses in enumerate(found):
        ended, cut = told[number, 0]
        ended = sorted(ended, key=lambda path: -path[2] / len(path[0]) ** penalty)
        for one, (tokens, logps, score) in zip(hypotheses, [*ended, *cut], strict=False):
            assert one.tokens == tokens
            assert one.logps == pytest.approx(logps, abs=0)
            assert one.score == pytest.approx(score) == pytest.approx(sum(logps))
    assert generate_tokens(case.model, case.source, **given) == found


@pytest.mark.parametrize(("search", "alternatives"), [(Greedy(), 1), (Sample(temperature=1.5, seed=3), 2)])
@pytest.mark.parametrize("candidates", some([1, 4, 99], 2))
def test_lines_retold(case: Any, search: Any, alternatives: int, candidates: int) -> None:
    watched = Recorder(candidates)
    given = {"prefixes": case.prefixes, "search": search, "alternatives": alternatives, "max_tokens": 6}
    found = generate_tokens(case.model, case.source, observer=watched, **given)
    told = retell(watched.records)
    for number, hypotheses in enumerate(found):
        for alternative, one in enumerate(hypotheses):
            ended, cut = told[number, alternative]
            ((tokens, logps, score),) = [*ended, *cut]
            assert (one.tokens, one.finished) == (tokens, bool(ended))
            assert one.logps == logps and one.score == pytest.approx(score)
    assert all(record.tokens.shape[1] == min(candidates, 9) for record in watched.records)


@torch.no_grad()
def test_the_candidates_are_the_best_ones(make_case: Callable[[str], Any]) -> None:
    case = make_case("luong")
    watched = Recorder(4)
    found = generate_tokens(case.model, case.source, observer=watched, max_tokens=5)
    for record in watched.records:
        assert record.draws is None and record.probabilities is None
        for g, number in enumerate(record.inputs.tolist()):
            logps = case.logps(number, found[number][0].tokens[: record.step])
            logps[[0, 2]] = -torch.inf
            want, tokens = logps.topk(4)
            assert record.tokens[g].tolist() == tokens.tolist()
            torch.testing.assert_close(record.logps[g], want, atol=1e-9, rtol=0)


@torch.no_grad()
def test_the_draw_and_what_it_was_drawn_from(make_case: Callable[[str], Any]) -> None:
    """With all candidates told, the draw lies in the drawn token's part of the line of tokens."""
    case = make_case("transformer lm modern")
    search = Sample(temperature=1.7, top_k=5, seed=8)
    watched = Recorder(9)
    found = generate_tokens(
        case.model, None, prefixes=case.prefixes, search=search, alternatives=2, max_tokens=5, observer=watched
    )
    seen = 0
    for record in watched.records:
        assert torch.equal(record.draws, uniform(8, record.inputs, record.alternatives, record.step))
        for g, number in enumerate(record.inputs.tolist()):
            token = found[number][int(record.alternatives[g])].tokens[record.step]
            by_token = dict(zip(record.tokens[g].tolist(), record.probabilities[g].tolist(), strict=True))
            before = sum(p for other, p in by_token.items() if other < token)
            assert (
                before <= record.draws[g].item() + 1e-12 and record.draws[g].item() < before + by_token[token] + 1e-12
            )
            assert sum(by_token.values()) == pytest.approx(1)
            assert sum(p > 0 for p in by_token.values()) == 5
            assert record.probabilities[g].tolist() == sorted(record.probabilities[g].tolist(), reverse=True)
            seen += 1
    assert seen == sum(len(one.tokens) for each in found for one in each)


def test_a_beam_by_hand(automaton_of: Callable[..., Any]) -> None:
    """Two steps of a beam of two, all numbers written out."""
    model = automaton_of({2: {4: 0.6, 5: 0.3, 3: 0.1}, 4: {5: 0.5, 6: 0.3, 3: 0.2}, 5: {3: 0.9, 6: 0.1}, 6: {6: 1.0}})
    watched = Recorder()
    generate_tokens(model, None, prefixes=[[]], search=Beam(2, length_penalty=0), max_tokens=2, observer=watched)
    first, second = watched.records
    assert (first.step, second.step) == (0, 1)
    assert first.tokens[0, :3].tolist() == [4, 5, END] and first.parents[0, :3].tolist() == [0, 0, 0]
    assert first.kept.tolist() == [[0, 1]] and not first.ended.any()  # END is third, outside of the beam
    assert first.scores[0, :3].exp().tolist() == pytest.approx([0.6, 0.3, 0.1])
    # 4 5: 0.3, 5 END: 0.27, 4 6: 0.18, 4 END: 0.12
    assert second.tokens.tolist() == [[5, END, 6, END]] and second.parents.tolist() == [[0, 1, 0, 0]]
    assert second.scores.exp()[0].tolist() == pytest.approx([0.3, 0.27, 0.18, 0.12])
    assert second.logps.exp()[0].tolist() == pytest.approx([0.5, 0.9, 0.3, 0.2])
    assert second.ended.tolist() == [[False, True, False, False]] and second.kept.tolist() == [[0, 2]]
    assert first.done.tolist() == [False] and second.done.tolist() == [True]


def test_empty_slots_are_told(automaton_of: Callable[..., Any]) -> None:
    """A beam of three at a first step with two possible tokens, one of them END."""
    model = automaton_of({2: {4: 0.7, 3: 0.3}, 4: {4: 0.5, 3: 0.5}})
    model.project = lambda states: model.table[states].masked_fill(model.table[states] < -1e8, -torch.inf)
    model.table.data[[0, 1, 3, 5, 6]] = 0.0  # states that only what fills empty slots comes to
    watched = Recorder()
    generate_tokens(model, None, prefixes=[[]], search=Beam(3), max_tokens=3, observer=watched)
    first = watched.records[0]
    assert first.kept.tolist() == [[0, -1, -1]]
    assert first.ended.tolist() == [[False, True, False, False, False, False]]
    assert (first.scores > -torch.inf).sum() == 2


def test_prefixes_are_not_reported(make_case: Callable[[str], Any]) -> None:
    """Nobody chose them: the first record is of the first token that was written."""
    case = make_case("bahdanau")
    watched = Recorder()
    generate_tokens(case.model, [[5, 3]], prefixes=[[4, 6, 7]], max_tokens=2, observer=watched)
    assert watched.records[0].step == 0
    assert watched.records[0].scores.max() == watched.records[0].logps.max()


def test_nothing_is_recorded_for_nobody(make_case: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a record was made")

    monkeypatch.setattr("regard.decoding.searches.search.StepRecord", refuse)
    monkeypatch.setattr("regard.decoding.searches.beam.StepRecord", refuse)
    case = make_case("transformer")
    for search in (Greedy(), Sample(), Beam(2)):
        generate_tokens(case.model, case.source, search=search, max_tokens=3)
        with pytest.raises(AssertionError, match="a record was made"):
            generate_tokens(case.model, case.source, search=search, max_tokens=3, observer=Recorder())
