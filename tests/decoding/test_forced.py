"""Given texts: their scores against the plain forward pass and against the searches, their attention against record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import regard
from regard.decoding.engine import generate_tokens
from regard.decoding.forced import forced_attention, score_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.errors import UsageError
from regard.text.tokenizers.special_tokens import END, START

TARGETS = [[5, 6, 3], [3], [8, 8, 4, 5, 6, 7, 3], [4, 1, 3], [7], [], [6, 6, 6, 6]]


@torch.no_grad()
def test_scores_of_the_plain_forward_pass(case: Any) -> None:
    """Targets of different lengths, with END and without, one of them empty; batches leave no trace."""
    for batch_tokens in (2048, 40, 1):
        scored = score_tokens(case.model, case.source, TARGETS, prefixes=case.prefixes, batch_tokens=batch_tokens)
        assert [one.tokens for one in scored] == TARGETS
        for row, (one, target) in enumerate(zip(scored, TARGETS, strict=True)):
            want = [case.logps(row, target[:i])[token].item() for i, token in enumerate(target)]
            assert one.logps == pytest.approx(want, abs=1e-9)
            assert one.score == pytest.approx(sum(want), abs=1e-9)


@pytest.mark.parametrize("search", [Greedy(), Sample(temperature=1.5, top_k=4, seed=2), Beam(3)], ids=repr)
def test_scores_of_what_a_search_found(case: Any, search: Any) -> None:
    """A hypothesis has the model's own score, whatever was barred or filtered on the way."""
    prefixes = [[5], [6, 7], [8], [4, 4, 4], [7, 6], [5, 5], [4]]
    found = generate_tokens(case.model, case.source, prefixes=prefixes, search=search, max_tokens=6)
    texts = [each[0].tokens for each in found]
    for one, (hypothesis,) in zip(score_tokens(case.model, case.source, texts, prefixes=prefixes), found, strict=True):
        assert one.logps == pytest.approx(hypothesis.logps, abs=1e-9)
        assert one.score == pytest.approx(hypothesis.score, abs=1e-9)


@torch.no_grad()
def test_a_language_model_scores_from_the_start(language_model: Any) -> None:
    (one,) = score_tokens(language_model.model, None, [[5, 6, END]])
    logps = language_model.model(torch.tensor([[START, 5, 6]])).log_softmax(-1)[0]
    assert one.logps == pytest.approx([logps[0, 5].item(), logps[1, 6].item(), logps[2, END].item()], abs=1e-9)


def test_scoring_leaves_training_mode_and_dropout_alone(case: Any) -> None:
    given = (case.source, TARGETS)
    want = score_tokens(case.model, *given, prefixes=case.prefixes)
    case.model.train()
    got = score_tokens(case.model, *given, prefixes=case.prefixes)
    assert all(module.training for module in case.model.modules())
    for one, other in zip(got, want, strict=True):
        assert one.logps == pytest.approx(other.logps, abs=1e-9)


def test_attention_is_what_record_sees_in_generation(translator: Any) -> None:
    """Row i is the distribution used when token i was produced, END's too."""
    model = translator.model
    lengths = [len(one.tokens) for (one,) in generate_tokens(model, translator.source, max_tokens=6)]
    source = translator.source[lengths.index(max(lengths))]
    with regard.record(model) as live:
        ((one,),) = generate_tokens(model, [source], max_tokens=6)
    maps = forced_attention(model, source, one.tokens)
    assert set(maps) == set(live)
    m, n = len(one.tokens), len(source)
    assert m > 1
    for name, weights in maps.items():
        assert weights.shape[1:] == ((n, n) if name.startswith("encoder") else (m, m if "self" in name else n))
        torch.testing.assert_close(weights, live[name][0], atol=1e-9, rtol=0)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_attention_after_a_prefix(translator: Any) -> None:
    """The rows are the target's alone; they are those of the whole text without the prefix's."""
    model, source = translator.model, translator.source[2]
    whole = forced_attention(model, source, [5, 6, 7, 4, END])
    part = forced_attention(model, source, [7, 4, END], prefix=[5, 6])
    assert set(part) == set(whole)
    for name, weights in part.items():
        want = whole[name] if name.startswith("encoder") else whole[name][:, 2:]
        torch.testing.assert_close(weights, want, atol=1e-9, rtol=0)


def test_attention_of_models(make_case: Callable[[str], Any]) -> None:
    names = {
        "transformer": {f"{part}.{i}.self" for part in ("encoder", "decoder") for i in (0, 1)}
        | {"decoder.0.cross", "decoder.1.cross"},
        "bahdanau": {"decoder.cross"},
        "luong": {"decoder.cross"},
        "sutskever": set(),
    }
    for name, layers in names.items():
        assert set(forced_attention(make_case(name).model, [5, 6, 3], [7, END])) == layers
    maps = forced_attention(make_case("transformer lm").model, None, [7, 8, END], prefix=[5, 6])
    assert {name: tuple(weights.shape) for name, weights in maps.items()} == {
        "decoder.0.self": (2, 3, 4),
        "decoder.1.self": (2, 3, 4),
    }
    assert maps["decoder.0.self"][0, 0, 2:].sum() == 0  # the first target token sees the two of the prompt
    assert forced_attention(make_case("rnn lm").model, None, [7, END]) == {}


def test_attention_leaves_the_mode_alone(make_case: Callable[[str], Any]) -> None:
    model = make_case("transformer").model
    want = forced_attention(model, [5, 6, 3], [7, END])
    model.train()
    got = forced_attention(model, [5, 6, 3], [7, END])
    assert model.training and torch.is_grad_enabled()
    assert all(torch.equal(weights, want[name]) for name, weights in got.items())


def test_mistakes_are_named(make_case: Callable[[str], Any]) -> None:
    model = make_case("transformer").model
    with pytest.raises(UsageError, match="1 sources and 2 targets"):
        score_tokens(model, [[5, 3]], [[5, 3], [6, 3]])
    with pytest.raises(UsageError, match="source 0 holds no token"):
        score_tokens(model, [[]], [[5, 3]])
    with pytest.raises(UsageError, match="the target holds no token"):
        forced_attention(model, [5, 3], [])
