"""regard.record on whole models: the names, and what a map of attention weights must be.

B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import regard


def names_of(config: Any) -> set[str]:
    """The maps that a model of these settings has."""
    kind = config.kind
    if kind == "transformer":
        decoder = range(config.decoder_layers or config.layers)
        return {f"encoder.{i}.self" for i in range(config.layers)} | {
            f"decoder.{i}.{which}" for i in decoder for which in ("self", "cross")
        }
    if kind == "transformer-lm":
        return {f"decoder.{i}.self" for i in range(config.layers)}
    return {"decoder.cross"} if kind == "rnn-attention" else set()


def test_names_and_shapes(case: Any, source: Tensor, target: Tensor) -> None:
    with regard.record(case.model) as maps:
        case.full(target, source)
    assert set(maps) == names_of(case.config)
    heads = 1 if case.recurrent else case.config.heads
    for name, weights in maps.items():
        m = 6 if name.startswith("encoder") else 5
        n = 6 if name.startswith("encoder") or name.endswith("cross") else 5
        assert weights.shape == (3, heads, m, n), name


def test_rows_are_distributions_over_what_may_be_seen(case: Any, source: Tensor, target: Tensor) -> None:
    """They sum to one; padding of the source and later words of the target have nothing."""
    with regard.record(case.model) as maps:
        case.full(target, source)
    for name, weights in maps.items():
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert (weights >= 0).all()
        if name.startswith("decoder") and name.endswith("self"):
            assert not weights.triu(1).any(), name
            near = torch.ones(5, 5).tril().triu(1 - (getattr(case.config, "window", None) or 5))  # of exact heads
            exact = getattr(case.config, "exact_heads_of", lambda name: ())(name)
            for head in range(weights.shape[1]):
                wanted = near if head in exact else torch.ones(5, 5).tril()
                assert torch.equal((weights[:, head] > 0).double(), wanted.double().expand(3, 5, 5)), name
        else:
            seen = (source != 0)[:, None, None].expand_as(weights)
            assert not weights[~seen].any() and (weights[seen] > 0).all(), name


@pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
def test_generation_gives_the_maps_of_the_whole(case: Any, source: Tensor, target: Tensor, static: bool) -> None:
    """Row i is the distribution used when token i was produced, whichever way it was."""
    with torch.no_grad(), regard.record(case.model) as whole:
        case.full(target, source)
    with torch.no_grad(), regard.record(case.model) as stepwise:
        state = case.start(source, static=static)
        for t in range(5):
            case.step(target[:, t : t + 1], state)
    assert set(stepwise) == set(whole)
    for name, want in whole.items():
        got = stepwise[name]
        assert not got[..., want.shape[-1] :].any()  # the unused places of a static cache
        torch.testing.assert_close(got[..., : want.shape[-1]], want, atol=1e-10, rtol=0)


def test_recording_changes_nothing(case: Any, source: Tensor, target: Tensor) -> None:
    before = case.full(target, source)
    with regard.record(case.model):
        torch.testing.assert_close(case.full(target, source), before, atol=1e-12, rtol=0)
    hooks = [module._forward_hooks or module._forward_pre_hooks for module in case.model.modules()]
    assert not any(hooks)


def test_sentence_encoder(encoder: Any, source: Tensor) -> None:
    with regard.record(encoder) as maps:
        encoder(source)
    learned = encoder.config.pooling == "learned"
    assert set(maps) == {"encoder.0.self", "encoder.1.self"} | ({"pool"} if learned else set())
    for name, weights in maps.items():
        assert weights.shape == ((3, 1, 1, 6) if name == "pool" else (3, 2, 6, 6))
        assert not weights[(source == 0)[:, None, None].expand_as(weights)].any()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_the_weights_are_those_of_the_formula(source: Tensor) -> None:
    """Of one layer, by hand: softmax(Q K^T / sqrt(d_k)) over the real tokens."""
    config = regard.EncoderConfig(vocabulary=11, layers=1, dim=8, heads=2, hidden=12)
    model: Any = regard.make_model(config).eval()
    with torch.no_grad(), regard.record(model) as maps:
        model(source)
        x = model.input(source)
        layer = model.encoder.blocks[0].self_attention.input
        q, k, _ = (x @ layer.weight.T + layer.bias).chunk(3, dim=-1)
        scores = torch.einsum("bihd,bjhd->bhij", q.view(3, 6, 2, 4), k.view(3, 6, 2, 4)) / 2
        want = scores.masked_fill((source == 0)[:, None, None], -torch.inf).softmax(-1)
    torch.testing.assert_close(maps["encoder.0.self"], want)


def test_a_compiled_model(source: Tensor, target: Tensor) -> None:
    config = regard.TransformerConfig(
        source_vocabulary=11, target_vocabulary=13, layers=1, dim=8, heads=2, hidden=12, dropout=0.0
    )
    model: Any = regard.make_model(config)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    compiled(source, target)
    with regard.record(compiled) as maps:
        compiled(source, target)
    with regard.record(model) as plain:
        model(source, target)
    torch.compiler.reset()
    assert set(maps) == {"encoder.0.self", "decoder.0.self", "decoder.0.cross"}
    for name, weights in maps.items():
        torch.testing.assert_close(weights, plain[name])
