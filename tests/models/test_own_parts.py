"""Scores and position schemes of a user's own: by registered name in configs, saved, loaded, decoded, recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.attention.scores import unregister_score
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens
from regard.decoding.requests import longest_text
from regard.errors import DataError, ModelError, UsageError
from regard.models.config import EncoderConfig, RecurrentTranslatorConfig, TransformerConfig, TransformerLMConfig
from regard.models.stack import Stack
from regard.positions import ModelSizes, Position, unregister_position
from regard.recipes.tables import DataRecipe
from regard.text.tokenizers.characters import train_characters
from regard.training.recipe.schema import Recipe

SIZES = {"layers": 2, "dim": 8, "heads": 2, "hidden": 16, "dropout": 0.0}
SIDES = {"source_vocabulary": 11, "target_vocabulary": 13}


def negative_distance(q: Tensor, k: Tensor) -> Tensor:
    return -torch.cdist(q, k)


class LearnedDistance(nn.Module):
    """A score with a parameter, made for each layer."""

    def __init__(self, *, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(query_dim))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return -torch.cdist(q * self.factor, k * self.factor)


class Nearest(Position):
    """A scheme that adds to the scores."""

    acts_on = "attention"

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -(j[..., None, :] - i[..., :, None]).abs()[..., None, :, :].to(q)


class Table(Position):
    """A scheme with parameters for each layer and a limited length."""

    acts_on, shared, limited = "attention", False, True

    def __init__(self, length: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(length))

    @classmethod
    def for_model(cls, sizes: ModelSizes) -> Table:
        assert sizes.max_length is not None
        return cls(sizes.max_length)

    def bias(self, q: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.table[j][..., None, None, :].expand(*j.shape[:-1], 1, i.shape[-1], -1).to(q)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    regard.register_score("distance", negative_distance)
    regard.register_score("learned-distance", LearnedDistance)
    regard.register_position("nearest", Nearest)
    regard.register_position("table", Table)
    yield
    for name in ("distance", "learned-distance"):
        unregister_score(name)
    for name in ("nearest", "table"):
        unregister_position(name)


OWN = [
    {"score": "distance"},
    {"score": "learned-distance", "position": "rotary"},
    {"score": "additive"},
    {"position": "nearest"},
    {"position": "table", "max_length": 20},
]


@pytest.mark.parametrize("own", OWN, ids=str)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_loaded_model_gives_the_same_outputs(own: dict[str, Any], seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    model: Any = regard.make_model(TransformerConfig(**SIZES, **SIDES, **own)).eval()
    source, target = torch.randint(4, 11, (2, 6)), torch.randint(4, 13, (2, 5))
    loaded: Any = regard.load_model(regard.save_model(model, tmp_path / "m"))
    assert torch.equal(loaded(source, target), model(source, target))
    plain: Any = regard.make_model(TransformerConfig(**SIZES, **SIDES))
    plain.load_state_dict(model.state_dict(), strict=False)
    assert not torch.allclose(plain.eval()(source, target), model(source, target), atol=1e-3)  # the part has an effect


@pytest.mark.parametrize("own", OWN, ids=str)
def test_it_trains_decodes_and_fuses(own: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model: Any = regard.make_model(TransformerConfig(**SIZES, **SIDES, **own))
    source = torch.randint(4, 11, (2, 6))
    model(source, source).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.eval()
    (first, *_), *_ = generate_tokens(model, source.tolist(), search=regard.Beam(2), max_tokens=6)
    target = torch.tensor([[1, *first.tokens]])
    steps = model.start(model.encode(source[:1]), 10)
    cached = [model.decode(target[:, i : i + 1], state=steps) for i in range(target.shape[1])]
    whole = model.decode(target, model.encode(source[:1]))
    assert torch.allclose(torch.cat(cached, 1), whole, atol=1e-5)
    expected = model(source, source)
    assert torch.equal(regard.kernels.fuse(model)(source, source), expected)
    with regard.record(model) as recording:
        assert torch.allclose(model(source, source), expected, atol=1e-5)
    assert len(recording) == 6


def test_a_layer_of_its_own_has_the_score_of_the_call() -> None:
    torch.manual_seed(1)
    layer = regard.MultiHeadAttention(dim=8, heads=2, kv_heads=1, score=negative_distance).eval()
    plain = regard.MultiHeadAttention(dim=8, heads=2, kv_heads=1).eval()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 8)
    assert torch.equal(layer(x, causal=True), plain(x, causal=True, score=negative_distance))
    with pytest.raises(ValueError, match="Alibi adds to the scaled dot product"):
        regard.MultiHeadAttention(dim=8, heads=2, score="dot", position="alibi")
    with pytest.raises(TypeError, match="score must be a name or a callable"):
        regard.MultiHeadAttention(dim=8, heads=2, score=3)  # type: ignore[arg-type]


def test_a_recurrent_translator_has_a_registered_score() -> None:
    config = RecurrentTranslatorConfig(**SIDES, embedding=8, hidden=8, encoder_hidden=4, attention="distance")
    source = torch.randint(4, 11, (2, 6))
    assert regard.make_model(config)(source, source).shape == (2, 6, 13)
    with pytest.raises(TypeError, match="LearnedDistance needs the methods keys and compare"):
        regard.make_model(
            RecurrentTranslatorConfig(**SIDES, embedding=8, hidden=8, encoder_hidden=4, attention="learned-distance")
        )


def test_a_folder_names_the_missing_registration(tmp_path: Path) -> None:
    for own, function in (({"score": "distance"}, "register_score"), ({"position": "nearest"}, "register_position")):
        ((setting, name),) = own.items()
        folder = regard.save_model(regard.make_model(TransformerConfig(**SIZES, **SIDES, **own)), tmp_path / name)
        (unregister_score if setting == "score" else unregister_position)(name)
        with pytest.raises(ModelError, match=rf"unknown {setting} '{name}'.* call regard.{function}\('{name}', …\)"):
            regard.load_model(folder)
        regard.register_score("distance", negative_distance)
        regard.register_position("nearest", Nearest)


class OwnAttention(regard.MultiHeadAttention):
    def forward(self, *args: Any, **options: Any) -> Any:
        return super().forward(*args, **{**options, "score": negative_distance})


def replace_module(layer: Any, model: Any) -> None:
    replacement = OwnAttention(dim=8, heads=2)
    replacement.load_state_dict(layer.state_dict())
    model.encoder.blocks[0].self_attention = replacement


CHANGES: dict[str, tuple[Any, str]] = {
    "module": (replace_module, "is a OwnAttention, and a model with this config has a MultiHeadAttention"),
    "class": (lambda layer, model: setattr(layer, "__class__", OwnAttention), "is a OwnAttention"),
    "score": (lambda layer, model: setattr(layer, "score", negative_distance), "score=negative_distance, and .* None"),
    "score module": (lambda layer, model: setattr(layer, "score", regard.DotScore()), r"score \(DotScore\) is no"),
    "position": (lambda layer, model: setattr(layer, "position", Nearest()), r"position \(Nearest\) is no module"),
    "option": (lambda layer, model: setattr(layer, "window", 2), "window=2, and its config means None"),
    "method": (
        lambda layer, model: setattr(layer, "_attend", lambda q, k, v, *_: v + 1),
        r"self_attention \(MultiHeadAttention\) has a method _attend of its own",
    ),
    "hook": (lambda layer, model: layer.register_forward_hook(lambda m, i, y: 2 * y), "has a hook, which could change"),
    "removed": (lambda layer, model: setattr(model.decoder.blocks[1], "cross_attention", None), "1.cross_attention"),
    "tied": (lambda layer, model: setattr(model.output, "weight", model.target.embedding.weight), "output.weight"),
    "config": (lambda layer, model: setattr(model, "config", TransformerConfig(**SIZES, **SIDES)), "output"),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_not_saved_as_another(change: str, seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    model: Any = regard.make_model(TransformerConfig(**SIZES, **SIDES, tie_output=False)).eval()
    apply, reason = CHANGES[change]
    apply(model.encoder.blocks[0].self_attention, model)
    with pytest.raises(UsageError, match=f"cannot save this model: .*{reason}.*register your own"):
        regard.save_model(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_what_does_not_change_outputs_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model: Any = regard.make_model(TransformerConfig(**SIZES, **SIDES)).eval()
    source = torch.randint(4, 11, (2, 6))
    expected = model(source, source)
    regard.kernels.fuse(model)
    model.decoder.blocks[0].dropout.p = 0.5  # only in training
    model.decoder.blocks[0].compile()
    with regard.record(model):
        folder = regard.save_model(model, tmp_path / "m")
    assert torch.equal(regard.load_model(folder)(source, source), expected)
    assert torch.equal(regard.load_model(regard.save_model(torch.compile(model), folder))(source, source), expected)


class ParallelBlock(nn.Module):
    """Attention and feed-forward side by side, with or without a source; no part has the name it has in a Block."""

    def __init__(self, cross: bool) -> None:
        super().__init__()
        self.norm = regard.LayerNorm(8)
        self.look = regard.MultiHeadAttention(dim=8, heads=2, dropout=0.1)
        self.look_at_source = regard.MultiHeadAttention(dim=8, heads=2) if cross else None
        self.think = regard.FeedForward(dim=8, hidden=16)

    def forward(
        self, x: Tensor, *, mask: Any, causal: bool, cache: Any, memory: Any, memory_mask: Any
    ) -> Tensor:  # fmt: skip
        y = self.norm(x)
        out = x + self.think(y) + self.look(y, mask=mask, causal=causal, cache=cache)
        if self.look_at_source is None:
            return out
        source = {"key": memory} if isinstance(memory, Tensor) else {"cache": memory}
        return out + self.look_at_source(y, mask=memory_mask, **source)

    def new_cache(self, batch: int, capacity: int, *, static: bool = False) -> Any:
        return self.look.new_cache(batch, capacity, static=static)

    def project_source(self, states: Tensor, mask: Tensor | None) -> Any:
        assert self.look_at_source is not None
        return self.look_at_source.project_source(states)


def with_parallel_blocks(model: Any) -> Any:
    for name in ("encoder", "decoder"):
        blocks = [ParallelBlock(cross=name == "decoder") for _ in range(2)]
        setattr(model, name, Stack(blocks=blocks, norm=regard.LayerNorm(8)))
    return model


@pytest.mark.parametrize("fused", [False, True])
def test_a_stack_of_own_blocks(fused: bool) -> None:
    torch.manual_seed(1)
    model = with_parallel_blocks(regard.make_model(TransformerConfig(**SIZES, **SIDES)))
    model = regard.kernels.fuse(model) if fused else model
    source, target = torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    model.eval()
    state = model.start(model.encode(source), 5)
    steps = [model.decode(target[:, i : i + 1], state=state) for i in range(5)]
    assert torch.allclose(torch.cat(steps, 1), model.decode(target, model.encode(source)), atol=1e-5)
    whole = [
        generate_tokens(model, [row], search=search, max_tokens=5)[0][0].tokens
        for search in (regard.Greedy(), regard.Beam(3))
        for row in source.tolist()
    ]
    together = [
        hypotheses[0].tokens
        for search in (regard.Greedy(), regard.Beam(3))
        for hypotheses in generate_tokens(PackedCopy().of(model), source.tolist(), search=search, max_tokens=5)
    ]
    assert whole == together
    with regard.record(model) as recording:
        model(source, target)
    assert len(recording) == 6


def test_a_block_without_the_methods_of_decoding() -> None:
    class Training(nn.Module):
        def forward(self, x: Tensor, **_: Any) -> Tensor:
            return 2 * x

    stack = Stack(blocks=[Training()])  # type: ignore[list-item]
    assert torch.equal(stack(torch.ones(1, 2, 8)), torch.full((1, 2, 8), 2.0))
    with pytest.raises(TypeError, match=r"block 0 \(Training\) has no method new_cache, which decoding needs"):
        stack.new_caches(1, 5)
    with pytest.raises(TypeError, match=r"block 0 \(Training\) has no method project_source"):
        stack.project_source(torch.ones(1, 2, 8))


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match=r"position must be a name, got Nearest.*regard.register_position"):
        TransformerConfig(**SIZES, **SIDES, position=Nearest())
    with pytest.raises(UsageError, match=r"score must be a name, got .*negative_distance.*regard.register_score"):
        TransformerConfig(**SIZES, **SIDES, score=negative_distance)
    with pytest.raises(UsageError, match="position 'nearest' adds to the scaled dot product, which score 'distance'"):
        TransformerConfig(**SIZES, **SIDES, score="distance", position="nearest")
    with pytest.raises(UsageError, match="position 'nearest' adds to scores, and random features have none"):
        TransformerConfig(**SIZES, **SIDES, attention="random-features", position="nearest")
    with pytest.raises(UsageError, match="random features estimate 'scaled' only"):
        TransformerConfig(**SIZES, **SIDES, attention="random-features", score="distance")
    with pytest.raises(UsageError, match="'none' is a recurrent translator without attention"):
        regard.register_score("none", negative_distance)
    with pytest.raises(UsageError, match="'dot' is a score of regard itself"):
        regard.register_score("dot", negative_distance)
    with pytest.raises(UsageError, match=r"subclass of regard\.positions\.Position"):
        regard.register_position("mine", negative_distance)  # type: ignore[arg-type]


def test_wrong_scores_are_explained() -> None:
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    with pytest.raises(ValueError, match=r"\(B, H, m, n\) = \(1, 2, 3, 5\); .* it returned \(1, 2, 5, 3\)"):
        regard.attend(q, k, k, score=lambda q, k: k @ q.mT)
    layer = regard.MultiHeadAttention(dim=8, heads=2, score=lambda q, k: q.sum(-1))
    with pytest.raises(ValueError, match=r"= \(2, 2, 5, 5\); .* it returned \(2, 2, 5\)"):
        layer(torch.randn(2, 5, 8))
    with pytest.raises(TypeError, match="floating point tensor, got NoneType"):
        regard.attend(q, k, k, score=lambda q, k: None)


def test_a_limited_scheme_limits_texts() -> None:
    own: dict[str, Any] = {**SIZES, "position": "table", "max_length": 6}
    model = regard.make_model(TransformerLMConfig(**own, vocabulary=13))
    assert longest_text(model) == 6 and longest_text(regard.make_model(TransformerConfig(**SIZES, **SIDES))) is None
    tokenizer = train_characters(["abcdefg"])
    encoder = regard.make_model(EncoderConfig(**own, vocabulary=tokenizer.size))
    with pytest.raises(DataError, match="positions for 6 only"):
        regard.Embedder(encoder, tokenizer).embed("abcdefg")
    with pytest.raises(UsageError, match=r"model\.max_length must be at least 10"):
        Recipe(name="own", data=DataRecipe(text=("a.txt",), context=10), model={"kind": "transformer-lm", **own})
