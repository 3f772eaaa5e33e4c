"""An ensemble: one model twice is that model, and several are the mean of their plain forward passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from regard.api.translator import Translator
from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import forced_attention, score_tokens
from regard.decoding.requests import longest_text
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.models.config import RecurrentTranslatorConfig, TransformerConfig
from regard.models.presets import make_model
from regard.text.tokenizers.characters import train_characters
from regard.text.tokenizers.special_tokens import END, PAD, START

TRANSLATORS = ["transformer", "luong", "transformer learned"]
WRITERS = ["transformer lm", "lstm lm", "rnn lm"]
SEARCHES = [Greedy(), Sample(temperature=1.2, seed=4), Beam(3)]
every_search = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: type(search).__name__)


def joint(cases: list[Any], row: int, text: list[int], mean: str) -> Tensor:
    """log p(next) (V,), from each model's plain forward pass."""
    logps = torch.stack([case.logps(row, text) for case in cases])
    if mean == "logs":
        return logps.mean(0).log_softmax(-1)
    return logps.exp().mean(0).log()


@torch.no_grad()
@pytest.mark.parametrize("mean", ["probabilities", "logs"])
@pytest.mark.parametrize("names", [TRANSLATORS, WRITERS, ["bahdanau"]], ids=str)
def test_against_the_naive_loop(make_case: Callable[[str], Any], names: list[str], mean: Any) -> None:
    cases = [make_case(name) for name in names]
    ensemble = Ensemble([case.model for case in cases], mean=mean)
    found = generate_tokens(ensemble, cases[0].source, prefixes=cases[0].prefixes, max_tokens=7)
    for row, (one,) in enumerate(found):
        text: list[int] = []
        while len(text) < 7 and END not in text:
            logps = joint(cases, row, text, mean)
            assert one.logps[len(text)] == pytest.approx(logps[one.tokens[len(text)]].item(), abs=1e-9)
            logps[[PAD, START]] = -math.inf
            text.append(int(logps.argmax()))
        assert one.tokens == text


@every_search
def test_one_model_twice_is_that_model(case: Any, search: Any) -> None:
    options: dict[str, Any] = {"prefixes": case.prefixes, "search": search, "max_tokens": 7}
    alone = generate_tokens(case.model, case.source, **options)
    for mean in ("probabilities", "logs"):
        twice = generate_tokens(Ensemble([case.model, case.model], mean=mean), case.source, **options)
        assert [one.tokens for (one,) in twice] == [one.tokens for (one,) in alone]
        assert [one.score for (one,) in twice] == pytest.approx([one.score for (one,) in alone], abs=1e-9)


@settings(max_examples=10)
@given(order=st.permutations(range(7)), batch_tokens=st.integers(1, 300), names=st.sampled_from([TRANSLATORS, WRITERS]))
def test_caches_batches_and_order_change_nothing(
    make_case: Callable[[str], Any], order: list[int], batch_tokens: int, names: list[str]
) -> None:
    cases = [make_case(name) for name in names]
    ensemble = Ensemble([case.model for case in cases])
    options: dict[str, Any] = {"search": Beam(3), "max_tokens": 6}
    given = cases[0].inputs(range(7))
    want = generate_tokens(ensemble, given["source"], prefixes=given["prefixes"], cached=False, **options)
    given = cases[0].inputs(order)
    got = generate_tokens(ensemble, given["source"], prefixes=given["prefixes"], batch_tokens=batch_tokens, **options)
    for place, row in enumerate(order):
        assert got[place][0].tokens == want[row][0].tokens
        assert got[place][0].score == pytest.approx(want[row][0].score, abs=1e-9)


@every_search
@pytest.mark.parametrize("names", [TRANSLATORS, WRITERS], ids=str)
def test_scores_are_the_ensembles_own(make_case: Callable[[str], Any], names: list[str], search: Any) -> None:
    cases = [make_case(name) for name in names]
    ensemble = Ensemble([case.model for case in cases])
    given: dict[str, Any] = {"prefixes": cases[0].prefixes}
    found = [one for (one,) in generate_tokens(ensemble, cases[0].source, search=search, max_tokens=6, **given)]
    scored = score_tokens(ensemble, cases[0].source, [one.tokens for one in found], **given)
    assert [one.score for one in found] == pytest.approx([one.score for one in scored], abs=1e-9)


def test_it_streams(make_case: Callable[[str], Any]) -> None:
    ensemble = Ensemble([make_case(name).model for name in WRITERS])
    ((want,),) = generate_tokens(ensemble, None, prefixes=[[5, 6]], max_tokens=8)
    assert [*stream_tokens(ensemble, [5, 6], max_tokens=8)] == want.tokens


def test_half_precision_is_averaged_in_float32(make_case: Callable[[str], Any]) -> None:
    case = make_case("transformer")
    case.model.bfloat16()
    ensemble = Ensemble([case.model, make_case("luong").model.float()])
    hidden = ensemble.decode(torch.tensor([[2, 5]]), ensemble.encode(torch.tensor([[5, 3]])))
    logps = ensemble.project(hidden)
    assert logps.dtype == torch.float32
    torch.testing.assert_close(logps.exp().sum(-1), torch.ones(1, 2))


def test_learned_positions_of_any_model_are_an_end(make_case: Callable[[str], Any]) -> None:
    ensemble = Ensemble([make_case(name).model for name in TRANSLATORS])
    assert longest_text(ensemble) == 24
    assert longest_text(Ensemble([make_case("luong").model])) is None


def test_a_translator_of_several_models() -> None:
    """Text in, text out, scores and alignments; where it looked is where the first model did."""
    source, target = train_characters(["abcd e"]), train_characters(["xyz"])
    sides = {"source_vocabulary": source.size, "target_vocabulary": target.size}
    models = [
        make_model(TransformerConfig(**sides, layers=1, dim=8, heads=2, hidden=8)),
        make_model(RecurrentTranslatorConfig(**sides, embedding=6, hidden=8)),
    ]
    translator = Translator(Ensemble(models), source, target)
    found = translator.translate(["ab cd", "e"], beam=2, max_tokens=6, guard=False, attention=True)
    assert len(found) == 2
    for one in found:
        first = forced_attention(models[0], one.source_ids, one.ids)
        assert set(one.attention.layers) == set(first) and one.alignment().weights is not None
    scored = translator.score("ab cd", "xy")
    ids = [*target.encode("xy"), END]
    each = [score_tokens(model, [translator.read("ab cd").ids], [ids])[0].logps for model in models]
    want = [math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*each, strict=True)]
    assert scored.logps == pytest.approx(want, abs=1e-5)


def test_mistakes_are_named(make_case: Callable[[str], Any]) -> None:
    model = make_case("transformer").model
    other = make_model(
        TransformerConfig(source_vocabulary=11, target_vocabulary=10, layers=1, dim=8, heads=2, hidden=8)
    )
    with pytest.raises(UsageError, match="an ensemble needs at least one model"):
        Ensemble([])
    with pytest.raises(UsageError, match=r"same vocabularies, and target_vocabulary is \[9, 10\]"):
        Ensemble([model, other])
    with pytest.raises(UsageError, match=r"same vocabularies, and vocabulary is \[None, 9\]"):
        Ensemble([model, make_case("rnn lm").model])
    with pytest.raises(UsageError, match="mean must be 'probabilities' or 'logs', got 'median'"):
        Ensemble([model], mean="median")  # type: ignore[arg-type]
