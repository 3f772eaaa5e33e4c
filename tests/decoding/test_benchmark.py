"""The measuring of decoding: right counts by a clock that is known, and a floor counted by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.decoding import benchmark as bench
from regard.decoding.benchmark import Measured, measure_decoding, percentile, random_inputs, read_speed, step_bytes
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.logit_rules import MinTokens
from regard.errors import UsageError
from regard.models.config import RecurrentLMConfig, RecurrentTranslatorConfig, TransformerConfig, TransformerLMConfig
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import END


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock on which each look is `step` seconds after the one before."""
    ticks: Iterator[int] = count()
    return lambda: next(ticks) * step


def measured(**changed: Any) -> Measured:
    values: dict[str, Any] = {
        "batch": 4,
        "tokens": [40, 40, 40],
        "seconds": [2.0, 1.0, 4.0],
        "alone_tokens": [10, 10, 10],
        "alone_seconds": [0.5, 0.2, 0.1],
        "alone_steps": [10, 20, 10],
        "step_bytes": 10**6,
        "read_speed": 1e9,
        "resident": 10**9,
        "allocated": None,
    }
    return Measured(**values | changed)


def test_every_kind_of_model_writes_exactly_what_was_asked(case: Any) -> None:
    seen = []

    def watch(runs: Any) -> Iterator[int]:
        for run in runs:
            seen.append(run)
            yield run

    inputs = random_inputs(case.model, 5, 4)
    for search in (Greedy(rules=(MinTokens(7),)), Beam(2, rules=(MinTokens(7),))):
        found = measure_decoding(
            case.model, inputs, search=search, max_tokens=7, batch=3, runs=4, clock=ticking(), watch=watch
        )
        assert found.tokens == [21] * 4 and found.alone_tokens == [7] * 4
        assert found.seconds == found.alone_seconds == [1.0] * 4  # two looks at the clock for each
        assert found.tokens_per_second == 21 and found.texts_per_second == 3
        assert found.latency == {"p50": 1.0, "p90": 1.0, "p99": 1.0} and found.step == pytest.approx(1 / 7)
        assert found.resident is None or found.resident > 10**7
    assert seen == [0, 1, 2, 3] * 2


def test_texts_that_end_are_counted_as_they_are(automaton_of: Callable[..., Any]) -> None:
    model = automaton_of({2: {4: 1.0}, 4: {5: 1.0}, 5: {END: 1.0}})
    model.output_table, model.decoder = (model.table, None), model
    found = measure_decoding(
        model, [[2], [2, 4], [2, 4, 5]], search=Greedy(), max_tokens=[9, 9, 9], batch=2, runs=3, clock=ticking()
    )
    assert found.alone_tokens == [3, 2, 1]
    assert found.tokens == [5, 4, 3]  # inputs 1 and 2, 3 and 1, 2 and 3


def test_a_beam_takes_the_steps_that_it_takes(automaton_of: Callable[..., Any]) -> None:
    """Each reads the weights once, for all its rows: not once a token of the best text, and not once a row."""
    steps = []
    model = automaton_of({2: {4: 0.6, 5: 0.4}, 4: {END: 0.3, 4: 0.7}, 5: {END: 0.9, 5: 0.1}})
    decode = model.decode
    model.decode = lambda *given, **named: steps.append(1) or decode(*given, **named)
    model.output_table, model.decoder = (model.table, None), model
    for search in (Greedy(), Beam(3, length_penalty=0.0)):
        steps.clear()
        found = measure_decoding(model, [[2]], search=search, max_tokens=8, batch=1, runs=1, clock=ticking())
        passes = len(steps) // (3 + (not search.streams))  # twice to warm up, once timed, a beam once more to count
        assert found.alone_steps == [passes] and found.step == pytest.approx(1 / passes)
    assert found.alone_tokens == [2] and passes > 2


def test_a_batch_of_one_is_a_text_alone(make_case: Callable[..., Any]) -> None:
    model = make_case("transformer lm").model
    found = measure_decoding(model, [[5, 6]], search=Greedy(), max_tokens=3, batch=1, runs=2)
    assert found.tokens == found.alone_tokens and found.seconds == found.alone_seconds


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"runs": 0}, {"inputs": []}])
def test_nothing_to_measure(wrong: dict[str, Any], make_case: Callable[..., Any]) -> None:
    right: dict[str, Any] = {"inputs": [[5]], "batch": 1, "runs": 1, "search": Greedy(), "max_tokens": 3}
    with pytest.raises(UsageError, match="nothing to measure"):
        measure_decoding(make_case("rnn lm").model, **right | wrong)


def test_what_follows_from_the_times() -> None:
    found = measured()
    assert found.tokens_per_second == 20 and found.texts_per_second == 2
    assert found.latency == {"p50": 0.2, "p90": 0.5, "p99": 0.5}
    assert found.step == pytest.approx(0.01) and found.floor == pytest.approx(0.001)  # of 0.05, 0.01 and 0.01
    assert found.share == pytest.approx(0.1)
    assert found.to_dict()["share_of_floor"] == found.share and found.to_dict()["seconds"] == found.seconds


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_in_order_and_leave_out_no_more_than_they_say(values: list[float]) -> None:
    found = measured(alone_seconds=values, alone_steps=[1] * len(values)).latency
    assert found["p50"] <= found["p90"] <= found["p99"] <= max(values)
    for share in (50, 90, 99):
        at = percentile(values, share)
        assert at in values and sum(value <= at for value in values) >= share / 100 * len(values)
        assert sum(value < at for value in values) < share / 100 * len(values)


@given(st.integers(2, 9), st.integers(0, 5))
def test_random_inputs_are_words_and_end_as_sources_do(length: int, number: int) -> None:
    model: Any = make_model(TransformerConfig(source_vocabulary=9, target_vocabulary=6, layers=1, dim=4, heads=1))
    inputs = random_inputs(model, number, length)
    assert len(inputs) == number and all(len(tokens) == length and tokens[-1] == END for tokens in inputs)
    assert {token for tokens in inputs for token in tokens[:-1]} <= set(range(4, 9))
    writer: Any = make_model(TransformerLMConfig(vocabulary=6, layers=1, dim=4, heads=1))
    assert {token for tokens in random_inputs(writer, number, length) for token in tokens} <= {4, 5}
    with pytest.raises(UsageError, match="no inputs of 0 tokens"):
        random_inputs(model, 1, 0)


STACK: dict[str, Any] = {"layers": 3, "dim": 8, "heads": 2, "hidden": 20, "bias": False, "norm": "rms"}
SIDES = {"source_vocabulary": 50, "target_vocabulary": 30}
D, F, V = 8, 20, 30
BLOCK = 4 * D * D + 2 * D * F + 2 * D  # self-attention, feed-forward, their norms
CROSS = 2 * D * D + D  # of the source only the queries and the output


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("position", ["sinusoidal", "learned"])
def test_the_floor_of_transformers_counted_by_hand(tie: bool, position: str) -> None:
    """Tables of tokens and positions are read by the row, and the source's keys and values are made once."""
    setting: dict[str, Any] = {**STACK, "tie_output": tie, "position": position}
    assert step_bytes(make_model(TransformerConfig(**setting, **SIDES))) == 4 * (3 * (BLOCK + CROSS) + V * D)
    assert step_bytes(make_model(TransformerLMConfig(**setting, vocabulary=V))) == 4 * (3 * BLOCK + V * D)
    shared = TransformerConfig(**setting, source_vocabulary=V, target_vocabulary=V, share_embeddings=True)
    assert step_bytes(make_model(shared).bfloat16()) == 2 * (3 * (BLOCK + CROSS) + V * D)
    grouped = TransformerConfig(**setting, **SIDES, kv_heads=1)  # half the rows of keys and values
    assert step_bytes(make_model(grouped)) == 4 * (3 * (BLOCK - D * D + CROSS) + V * D)


def test_the_floor_of_recurrent_models_counted_by_hand() -> None:
    H, E = 6, 5
    gru = 3 * H * (E + H) + 6 * H
    lm = RecurrentLMConfig(vocabulary=V, embedding=E, hidden=H, layers=1, cell="gru")
    assert step_bytes(make_model(lm)) == 4 * (gru + V * H + V)
    sides: dict[str, Any] = {**SIDES, "embedding": E, "hidden": H, "layers": 1, "cell": "gru"}
    bahdanau = RecurrentTranslatorConfig(**sides)  # reads both directions, of half the width each
    score = H * H + H  # the query's matrix and v; the keys' is used once
    cell = 3 * H * (E + H + H) + 6 * H
    readout = H * (H + H + E) + H
    assert step_bytes(make_model(bahdanau)) == 4 * (cell + score + readout + V * H + V)


def test_weights_in_a_form_of_their_own_count_as_they_are_stored() -> None:
    model: Any = make_model(TransformerLMConfig(**STACK, vocabulary=V))
    before = step_bytes(model)
    weight = model.output_table[0]
    weight.numbers = torch.zeros(weight.shape, dtype=torch.int8)
    assert before - step_bytes(model) == 3 * weight.numel()
    weight.scales = torch.zeros(len(weight))
    assert before - step_bytes(model) == 3 * weight.numel() - 4 * V


def test_the_speed_of_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "READS", 3)
    assert read_speed(4000, torch.device("cpu"), clock=ticking(0.5)) == 8000
    times = iter([0.0, 4.0, 4.0, 5.0, 5.0, 7.0])
    assert read_speed(4000, torch.device("cpu"), clock=lambda: next(times)) == 4000  # the best of them
