"""Inputs that enter a batch while others are being written: who is done first, how much is computed, what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

from regard.attention.cache import KVCache, RowCache
from regard.decoding import requests as requests_module
from regard.decoding.engine import generate_tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.requests import Request, RequestQueue, make_requests
from regard.decoding.running_batch import RunningBatch
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens, NoRepeat
from regard.decoding.searches.minimum_risk import MinimumRisk
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.search import Hypothesis

KINDS = ["transformer", "transformer modern", "transformer learned", "transformer lm", "transformer lm modern"]
KINDS += ["sutskever", "bahdanau", "luong", "rnn lm", "lstm lm"]
SEARCHES: dict[str, tuple[Any, int]] = {  # and how many alternatives
    "greedy": (Greedy(), 1),
    "ruled": (Greedy(rules=(MinTokens(3), NoRepeat(2))), 1),
    "sample": (Sample(temperature=1.5, seed=7), 3),
    "beam": (Beam(3, length_penalty=0.6), 2),
    "risk": (MinimumRisk(4), 1),
}


def requests_of(case: Any, limits: list[int]) -> list[Request]:
    inputs = case.inputs(list(range(7)))
    return make_requests(inputs["source"], inputs["prefixes"], limits)


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [(one.tokens, one.finished) for one in found] == [(one.tokens, one.finished) for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-9)
        assert one.ranking == pytest.approx(other.ranking, abs=1e-9)


def run(batch: RunningBatch, arrivals: dict[int, list[Request]]) -> tuple[dict[int, list[Hypothesis]], list[int]]:
    """The texts, and the numbers of the inputs as they came back, where inputs arrive before the given steps."""
    found: dict[int, list[Hypothesis]] = {}
    order: list[int] = []
    now = 0
    while arrivals or batch.rows:
        for request in arrivals.pop(now, []):
            batch.add([request])
        if batch.rows:
            done = batch.step()
            assert not done.keys() & found.keys()
            found |= done
            order += done
        now += 1
    return found, order


@settings(max_examples=20)
@given(
    when=st.lists(st.integers(0, 9), min_size=7, max_size=7),
    limits=st.lists(st.integers(1, 9), min_size=7, max_size=7),
    search=st.sampled_from(sorted(SEARCHES)),
    data=st.data(),
)
def test_whenever_they_enter(
    make_case: Callable[[str], Any], when: list[int], limits: list[int], search: str, data: Any
) -> None:
    """What each input gets is what it gets alone; all kinds of models, texts of any age side by side."""
    case = make_case(data.draw(st.sampled_from(KINDS)))
    requests = requests_of(case, limits)
    kind, alternatives = SEARCHES[search]
    arrivals: dict[int, list[Request]] = {}
    for request, time in zip(requests, when, strict=True):
        arrivals.setdefault(time, []).append(request)
    found, _ = run(RunningBatch(case.model, search=kind, alternatives=alternatives), arrivals)
    for request in requests:
        alone, _ = run(RunningBatch(case.model, search=kind, alternatives=alternatives), {0: [request]})
        assert_same(found[request.number], alone[request.number])


def test_models_of_an_ensemble_too(make_case: Callable[[str], Any]) -> None:
    case, other = make_case("transformer"), make_case("bahdanau")
    case.model = Ensemble([case.model, other.model])
    requests = requests_of(case, [9] * 7)
    found, _ = run(RunningBatch(case.model, search=Beam(2)), {0: requests[:3], 2: requests[3:5], 3: requests[5:]})
    wanted = generate_tokens(case.model, case.source, search=Beam(2), max_tokens=9)
    for number, texts in enumerate(wanted):
        assert_same(found[number], texts)


def test_a_short_one_that_comes_later_is_done_first(case: Any) -> None:
    requests = requests_of(case, [15, 3, 9, 2, 9, 9, 9])
    search = Greedy(rules=(MinTokens(15),))  # to the limit
    found, order = run(RunningBatch(case.model, search=search), {0: [requests[0]], 2: [requests[1]], 5: [requests[3]]})
    assert order == [1, 3, 0]
    assert [len(found[number][0].tokens) for number in order][:2] == [3, 2]


@pytest.mark.parametrize("width", [1, 4])
def test_rows_computed_over_rows_needed(make_case: Callable[[str], Any], width: int, monkeypatch: Any) -> None:
    """A mix in which few texts are long: a row that is done costs nothing more, and its place does not stay empty."""
    case = make_case("transformer")
    limits = [2 + (number * 7919 % 29) ** 2 // 25 for number in range(200)]  # 2 to 33, most of them short
    search = Greedy(rules=(MinTokens(99),)) if width == 1 else Beam(width, rules=(MinTokens(99),))
    made: list[RunningBatch] = []
    steps = []
    plain = RunningBatch.step

    def step(self: RunningBatch) -> Any:
        if self not in made:
            made.append(self)
        steps.append(self.rows)
        return plain(self)

    monkeypatch.setattr(RunningBatch, "step", step)
    monkeypatch.setitem(requests_module.FREE_SHARE, "cpu", 0.5)  # as on a GPU
    source = [[4 + number % 6, 3] for number in range(200)]
    most = 16 * width  # rows
    generate_tokens(case.model, source, search=search, max_tokens=limits, batch_tokens=most * (33 + 2 + 1))
    needed = width * sum(limit - 1 for limit in limits)  # what follows the last token is not computed
    (batch,) = made
    assert 1 <= batch.computed / needed <= 1.1
    # And the places are used: batches one after the other, sorted by length, would take more steps than this.
    assert sum(rows > 0 for rows in steps) < 1.35 * needed / most


def test_queue_lets_others_in_when_there_is_room() -> None:
    requests = [Request(number, [4] * (number + 1), [2], 9) for number in range(20)]
    queue = RequestQueue(requests, rows=2, batch_tokens=2 * 5 * 30)
    first = queue.take(0)
    assert [request.number for request in first] == [19, 18, 17, 16, 15]  # the longest
    assert queue.take(10) == [] and queue.take(6) == []  # too few have left
    second = queue.take(4)
    assert [request.number for request in second] == [14, 13, 12]
    assert [request.number for request in queue.take(0)] == [11, 10, 9, 8, 7, 6]  # these are shorter, so more fit


def test_joined_caches_give_back_what_was_written() -> None:
    noise = torch.Generator().manual_seed(0)
    first, second = (
        KVCache(torch.zeros(2, 1, 5, 3), torch.zeros(2, 1, 5, 3)),
        KVCache(torch.zeros(1, 1, 4, 3), torch.zeros(1, 1, 4, 3)),
    )
    a, b, c = (torch.randn(rows, 1, n, 3, generator=noise) for rows, n in ((2, 3), (1, 1), (3, 1)))
    first.append(a, 2 * a)
    second.append(b, 2 * b)
    joined = RowCache.join([first, second])
    k, v = joined.append(c, 2 * c)
    assert k.shape == (3, 1, 4, 3) and torch.equal(v, 2 * k)
    assert torch.equal(k[:2, :, :3], a) and torch.equal(k[:2, :, 3:], c[:2])
    assert torch.equal(k[2:, :, :1], b) and torch.equal(k[2:, :, 1:2], c[2:])
    mask, causal = joined.restrict(None, True, 1)
    assert not causal and mask[:, 0, 0].tolist() == [[True] * 4, [True] * 4, [True, True, False, False]]
    joined.keep(torch.tensor([2]), torch.tensor([0]))
    assert joined.longest == 2 and torch.equal(joined.append(c[:1], c[:1])[0][:, :, :1], b)
    with pytest.raises(ValueError, match="room for 5"):
        joined.append(torch.zeros(1, 1, 4, 3), torch.zeros(1, 1, 4, 3))
