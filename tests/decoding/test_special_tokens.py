"""Special tokens of a model's own: a model whose tokens are numbered otherwise writes the same texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from regard import Beam, Greedy, MinimumRisk, Speculative, TransformerConfig, TransformerLMConfig, make_model
from regard.decoding.engine import generate_tokens, stream_tokens
from regard.decoding.ensemble import Ensemble
from regard.decoding.forced import score_tokens
from regard.decoding.searches.logit_rules import EachOnce, MinTokens, NoRepeat
from regard.errors import UsageError
from regard.settings import SettingError

V = 23
NEW = torch.randperm(V, generator=torch.Generator().manual_seed(4))  # the new number of each token
SIZES: dict[str, Any] = {"layers": 1, "dim": 16, "heads": 2, "hidden": 16, "order": "pre", "position": "rotary"}


def renumbered(tokens: Any) -> list[int]:
    return [int(NEW[token]) for token in tokens]


def pair(config: Any, tables: tuple[str, ...]) -> tuple[Any, Any]:
    """A model, and the same model with the rows of its tables and its special tokens in another order."""
    torch.manual_seed(0)
    model = make_model(config).double().eval()
    with torch.no_grad():
        for name in tables:
            weight = model.get_parameter(name)
            weight.mul_(3)
            weight[3] *= 1.5  # texts end
    pad, unknown, start, end = renumbered(range(4))
    other = make_model(
        dataclasses.replace(
            config, pad_id=pad, unknown_id=unknown, start_id=start, end_ids=(end,), barred_ids=(pad, start)
        )
    )
    other = other.double().eval()
    state = model.state_dict()
    for name in tables:
        state[name] = torch.empty_like(state[name])
        state[name][NEW] = model.get_parameter(name).detach()
    other.load_state_dict(state)
    return model, other


@pytest.fixture(scope="module")
def writers() -> tuple[Any, Any]:
    config = TransformerLMConfig(vocabulary=V, tie_output=False, **SIZES)
    return pair(config, ("input.embedding.weight", "output.weight"))


@pytest.fixture(scope="module")
def translators() -> tuple[Any, Any]:
    config = TransformerConfig(source_vocabulary=V, target_vocabulary=V, tie_output=False, **SIZES)
    return pair(config, ("source.embedding.weight", "target.embedding.weight", "output.weight"))


def both(models: tuple[Any, Any], search: Any, other_search: Any = None, **options: Any) -> None:
    """Both models find the same texts, in their own numbers."""
    inputs = [[5, 6, 7, 3], [8, 3], [9, 10, 11, 12, 13, 3]]
    translates = hasattr(models[0], "encode")
    renamed = {
        name: [[renumbered(phrase) for phrase in phrases] for phrases in value] if name == "constraints" else value
        for name, value in options.items()
    }
    results = []
    for model, each_search, tokens, extra in (
        (models[0], search, inputs, options),
        (models[1], other_search or search, [renumbered(tokens) for tokens in inputs], renamed),
    ):
        where = {"prefixes": None if translates else tokens}
        source = tokens if translates else None
        results.append(generate_tokens(model, source, search=each_search, max_tokens=12, **where, **extra))
    for ours, theirs in zip(*results, strict=True):
        assert [renumbered(one.tokens) for one in ours] == [one.tokens for one in theirs]
        assert [one.finished for one in ours] == [one.finished for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.logps == pytest.approx(other.logps, abs=1e-10)


@pytest.mark.parametrize("kind", ["writers", "translators"])
def test_searches(kind: str, request: pytest.FixtureRequest) -> None:
    models = request.getfixturevalue(kind)
    both(models, Greedy())
    both(models, Greedy(), allow_unknown=False, allow_nonsense=False)
    both(models, Beam(4, length_penalty=0.6), alternatives=3)
    both(models, Beam(3), allow_unknown=False, allow_nonsense=False)
    both(models, MinimumRisk(4, search=Beam(4)))
    both(models, Beam(4), constraints=[[[15, 16]], [], [[17], [18]]])
    both(models, Beam(3, rules=(MinTokens(5), NoRepeat(2))))
    once = (EachOnce((15, 16), (17,)), EachOnce(tuple(renumbered((15, 16))), tuple(renumbered((17,)))))
    both(models, *(Greedy(rules=(rule,)) for rule in once))
    both(models, Speculative(models[0]), Speculative(models[1]))


def test_an_empty_prompt_and_streams(writers: tuple[Any, Any]) -> None:
    model, other = writers
    ours = list(stream_tokens(model, [], max_tokens=10))
    assert renumbered(ours) == list(stream_tokens(other, [], max_tokens=10))
    scored = [
        score_tokens(each, None, [tokens])[0].logps for each, tokens in ((model, ours), (other, renumbered(ours)))
    ]
    assert scored[0] == pytest.approx(scored[1], abs=1e-10)


def test_several_ends_and_rows_without_a_token(writers: tuple[Any, Any]) -> None:
    """The first token of the ends finishes a text; what the tokenizer lacks is never written."""
    model = writers[0]
    plain = generate_tokens(model, None, prefixes=[[5]], max_tokens=12)[0][0].tokens
    stop = next(token for token in plain if token != 3)
    several = make_model(dataclasses.replace(model.config, end_ids=(3, stop))).double().eval()
    several.load_state_dict(model.state_dict())
    for search in (Greedy(), Beam(3)):
        for (best,) in generate_tokens(several, None, prefixes=[[5], [6], [7]], search=search, max_tokens=12):
            assert not {3, stop} & {*best.tokens[:-1]}
            assert best.finished == (best.tokens[-1] in (3, stop))
    assert generate_tokens(several, None, prefixes=[[5]], max_tokens=12)[0][0].tokens == plain[: plain.index(stop) + 1]
    fewer = make_model(dataclasses.replace(model.config, tokenizer_size=15)).double().eval()
    fewer.load_state_dict(model.state_dict())
    for search in (Greedy(), Beam(3)):
        for (best,) in generate_tokens(fewer, None, prefixes=[[5], [6]], search=search, max_tokens=12):
            assert max(best.tokens) < 15


def test_what_does_not_go_together(writers: tuple[Any, Any]) -> None:
    with pytest.raises(UsageError, match=r"special_tokens is|pad_id is"):
        Ensemble(writers)
    with pytest.raises(UsageError, match="must have the same special tokens"):
        generate_tokens(writers[0], None, prefixes=[[5]], search=Speculative(writers[1]), max_tokens=3)
    for wrong, message in (
        ({"end_ids": ()}, "at least one token"),
        ({"end_ids": (V,)}, f"end_ids has the token {V}"),
        ({"start_id": V}, f"start_id has the token {V}"),
        ({"tokenizer_size": V + 1}, "more than the vocabulary"),
        ({"tokenizer_size": 9, "barred_ids": (9,)}, "there are tokens 0 to 8"),
    ):
        with pytest.raises(SettingError, match=message):
            TransformerLMConfig(vocabulary=V, **wrong)
