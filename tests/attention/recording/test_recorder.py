"""record: every map by name, while the block lasts and not a moment longer.

B batch   H heads   m queries   n keys
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from regard import ContentAttention, DotScore, KeyValueAttention, MultiHeadAttention, masks, record
from regard.attention.recording.recorder import layer_name


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(dim=8, heads=2)
        self.cross_attention = MultiHeadAttention(dim=8, heads=4)

    def forward(self, x: Tensor, source: Tensor, cache: object = None) -> Tensor:
        x = x + self.self_attention(x, causal=True, cache=cache)
        return x + self.cross_attention(x, source, mask=masks.padding([5, 3]))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor, source: Tensor, caches: tuple = (None, None)) -> Tensor:
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, source, cache)
        return x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = Tower()
        self.pool = ContentAttention(outputs=3, dim=8)
        self.lookup = KeyValueAttention(score=DotScore())

    def forward(self, x: Tensor, source: Tensor) -> Tensor:
        y = self.decoder(x, source)
        return self.lookup(self.pool(y), source)


NAMES = ["decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross", "pool", "lookup"]


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, 8), torch.randn(2, 5, 8)


def hooks(model: nn.Module) -> Iterator[dict]:
    for module in model.modules():
        yield from (
            module._forward_hooks,
            module._forward_pre_hooks,
            module._forward_pre_hooks_with_kwargs,
            module._forward_hooks_with_kwargs,
        )


def test_names_and_shapes(model: Model, data: tuple[Tensor, Tensor]) -> None:
    with record(model) as r:
        assert len(r) == 0 and list(r) == []
        model(*data)
    assert list(r) == NAMES and len(r) == 6 and "decoder.0.self" in r
    shapes = {name: tuple(weights.shape) for name, weights in r.items()}
    assert shapes == {
        "decoder.0.self": (2, 2, 4, 4),
        "decoder.1.self": (2, 2, 4, 4),
        "decoder.0.cross": (2, 4, 4, 5),
        "decoder.1.cross": (2, 4, 4, 5),
        "pool": (2, 1, 3, 4),
        "lookup": (2, 1, 3, 5),
    }


def test_the_maps_are_those_that_the_layers_use(model: Model, data: tuple[Tensor, Tensor]) -> None:
    x, source = data
    with record(model) as r:
        model(x, source)
    block = model.decoder.blocks[0]
    _, weights = block.self_attention(x, causal=True, return_weights=True)
    assert torch.equal(r["decoder.0.self"], weights)
    assert not r["decoder.0.self"].triu(1).any()
    assert not r["decoder.0.cross"][1, :, :, 3:].any()
    assert all(torch.allclose(w.sum(-1), torch.ones(())) for w in r.values())
    assert not any(w.requires_grad for w in r.values())


def test_results_are_the_same_with_and_without(model: Model, data: tuple[Tensor, Tensor]) -> None:
    want = model(*data)
    grads = torch.autograd.grad(want.sum(), list(model.parameters()))
    with record(model):
        got = model(*data)
        recorded = torch.autograd.grad(got.sum(), list(model.parameters()))
    assert isinstance(got, Tensor) and torch.allclose(got, want, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(grads, recorded, strict=True))


def test_one_layer_alone() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    with record(layer) as r:
        layer(torch.randn(2, 4, 8))
    assert list(r) == ["attention"] and r["attention"].shape == (2, 2, 4, 4)
    with record(nn.Linear(2, 2)) as r:
        pass
    assert list(r) == []


def test_steps_of_a_generation_are_joined(model: Model, data: tuple[Tensor, Tensor]) -> None:
    x, source = data
    with record(model.decoder) as whole:
        model.decoder(x, source)
    caches = tuple(block.self_attention.new_cache(2, 6) for block in model.decoder.blocks)
    with record(model.decoder) as r, torch.no_grad():
        for part in x.split([2, 1, 1], 1):
            model.decoder(part, source, caches)
    assert [step.shape[2:] for step in r.steps("0.self")] == [(2, 2), (1, 3), (1, 4)]
    for name in ("0.self", "1.self", "0.cross", "1.cross"):
        assert torch.allclose(r[name], whole[name], atol=1e-6)


def test_different_batches_cannot_be_joined() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    with record(layer) as r:
        layer(torch.randn(2, 4, 8))
        layer(torch.randn(1, 4, 8))
    with pytest.raises(ValueError, match=r"calls of 'attention' had different batch sizes.*steps\(\)"):
        r["attention"]
    assert [len(step) for step in r.steps("attention")] == [2, 1]


def test_clear_forgets() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    with record(layer) as r:
        layer(torch.randn(2, 4, 8))
        r.clear()
        assert list(r) == []
        layer(torch.randn(1, 3, 8))
    assert r["attention"].shape == (1, 2, 3, 3)


def test_a_caller_that_asked_for_weights_still_gets_them() -> None:
    layer, x = MultiHeadAttention(dim=8, heads=2), torch.randn(2, 4, 8)
    want, want_weights = layer(x, return_weights=True)
    with record(layer) as r:
        got, weights = layer(x, return_weights=True)
        alone = layer(x)
        again = layer(x, return_weights=False)
    assert torch.equal(got, want) and torch.equal(weights, want_weights)
    assert isinstance(alone, Tensor) and torch.equal(alone, want) and torch.equal(again, want)
    assert len(r.steps("attention")) == 3


def test_nested_recordings(model: Model, data: tuple[Tensor, Tensor]) -> None:
    with record(model) as outer:
        with record(model.decoder) as inner:
            got = model(*data)
        model(*data)
    assert isinstance(got, Tensor)
    assert len(inner.steps("0.self")) == 1 and len(outer.steps("decoder.0.self")) == 2
    assert torch.equal(inner["0.self"], outer.steps("decoder.0.self")[0])
    assert not any(hooks(model))


def test_hooks_of_the_user_see_what_they_always_see() -> None:
    layer, x = MultiHeadAttention(dim=8, heads=2), torch.randn(2, 4, 8)
    seen = []
    handle = layer.register_forward_hook(lambda module, args, output: seen.append(output))
    with record(layer):
        layer(x)
    handle.remove()
    assert isinstance(seen[0], Tensor)


def test_nothing_is_left_behind(model: Model, data: tuple[Tensor, Tensor]) -> None:
    state = model.state_dict().keys()
    with record(model):
        assert any(hooks(model))
    assert not any(hooks(model)) and model.state_dict().keys() == state
    with pytest.raises(ValueError, match="key must be"), record(model) as r:
        model(data[0], torch.randn(2, 5, 7))
    assert not any(hooks(model))
    assert list(r) == ["decoder.0.self"]  # what ran before the error is there
    assert isinstance(model(*data), Tensor)


def test_off_never_computes_weights(model: Model, data: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("the weights were computed")

    with record(model):
        pass
    monkeypatch.setattr("regard.attention.dispatch.attend_reference", refuse)
    model.decoder(*data)
    with record(model), pytest.raises(AssertionError, match="the weights were computed"):
        model.decoder(*data)


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_compiled_models_record_too(model: Model, data: tuple[Tensor, Tensor], backend: str) -> None:
    torch.compiler.reset()
    with record(model) as want, torch.no_grad():
        y = model(*data)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        assert torch.allclose(compiled(*data), y, atol=1e-6)
        with record(compiled) as r:
            assert torch.allclose(compiled(*data), y, atol=1e-6)
        assert list(r) == NAMES
        assert all(torch.allclose(r[name], want[name], atol=1e-6) for name in NAMES)
        assert torch.allclose(compiled(*data), y, atol=1e-6)
    assert len(r.steps("pool")) == 1 and not any(hooks(model))


def test_unknown_names_are_helped() -> None:
    layer = MultiHeadAttention(dim=8, heads=2)
    with record(nn.ModuleDict({"cross_attention": layer})) as r:
        pass
    with pytest.raises(KeyError, match=r"no attention layer 'crss'; did you mean 'cross'\? \(recorded: cross\)"):
        r["crss"]
    with pytest.raises(KeyError, match="layer 'cross' has not run since the recording began"):
        r["cross"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("decoder.blocks.2.cross_attention", "decoder.2.cross"),
        ("encoder.blocks.0.self_attention", "encoder.0.self"),
        ("_orig_mod.blocks.1.self_attention", "1.self"),
        ("attention", "attention"),
        ("_orig_mod", "attention"),
        ("", "attention"),
    ],
)
def test_short_names(path: str, name: str) -> None:
    assert layer_name(path) == name
