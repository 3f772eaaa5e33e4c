"""Settings by which the lectures differ from the paper: each trains, decodes with a cache, is saved, and no engine that
does not know it takes over.

L0 and L1: first index 1; L1: concatenated positions; L2: a start token on the source; L4: no output matrix; free d_k
and d_v; F2: sigma; F4: the Fourier score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.decoding.cpu import module_search
from regard.decoding.cpu.packed_copy import PackedCopy
from regard.decoding.engine import generate_tokens
from regard.decoding.gpu import support
from regard.decoding.searches.greedy import Greedy
from regard.errors import UsageError
from regard.kernels import fuse
from regard.look.inside.inside import inside_block
from regard.look.trace.tracing import trace_text
from regard.models.config import EncoderConfig, TransformerConfig, TransformerLMConfig
from regard.models.folder import load_model, save_model
from regard.models.presets import make_model
from regard.text.tokenizers.special_tokens import START
from regard.traits import traits_of

from ..repeats import some
from ..small_recipes import make_recipe as make_recipe

SIZES: dict[str, Any] = {"layers": 2, "dim": 8, "heads": 2, "hidden": 12, "max_length": 16, "dropout": 0.0}
SIDES = {"source_vocabulary": 11, "target_vocabulary": 13}
RANDOM = {"attention": "random-features", "random_features": {"features": 8, "sigma": 0.7}}
VARIANTS: dict[str, tuple[dict[str, Any], str | None]] = {  # settings, and the trait that keeps an engine away
    "concatenated": ({"position": "learned", "position_width": 3, "tie_output": False}, "learned-concat"),
    "from 1": ({"position_start": 1, "frequency_start": 1}, None),  # C takes the vectors from the module
    "no output": ({"attention_output": False}, "no-output"),
    "widths": ({"d_k": 3, "d_v": 5}, "head-widths"),
    "odd heads": ({"heads": 3, "d_k": 2, "d_v": 4, "position": "rotary"}, "head-widths"),
    "fourier": ({"score": "fourier"}, "score fourier"),
    "sigma": (RANDOM, "feature-scale"),
    "source start": ({"source_start": True}, None),  # the model reads one more token and is the same
}


def translator(name: str) -> Any:
    torch.manual_seed(1)
    return make_model(TransformerConfig(**{**SIZES, **VARIANTS[name][0]}, **SIDES)).double().eval()


@pytest.fixture
def tokens() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(4, 11, (2, 5), generator=draw), torch.randint(4, 11, (2, 6), generator=draw)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_with_a_cache_is_the_whole_text(name: str, tokens: tuple[Tensor, Tensor]) -> None:
    model, (source, target) = translator(name), tokens
    with torch.no_grad():
        state = model.start(model.encode(source), 6)
        steps = [model.project(model.decode(target[:, i : i + 1], state=state)) for i in range(6)]
        torch.testing.assert_close(torch.cat(steps, 1), model(source, target), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_model_is_loaded_with_its_settings(name: str, tokens: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    model = translator(name)
    loaded = load_model(save_model(model.float(), tmp_path / "model"))
    assert loaded.config == model.config
    assert torch.equal(loaded(*tokens), model(*tokens))


@pytest.mark.parametrize("name", some(VARIANTS, 3))
def test_every_part_learns(name: str, tokens: tuple[Tensor, Tensor]) -> None:
    model, (source, target) = translator(name).train(), tokens
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("name", [name for name, (_, trait) in VARIANTS.items() if trait is not None])
def test_an_engine_that_does_not_know_a_variant_falls_back(name: str, tokens: tuple[Tensor, Tensor]) -> None:
    model, trait = translator(name).float(), VARIANTS[name][1]
    assert trait in traits_of(model)
    assert trait not in module_search.KNOWN_TRAITS | support.KNOWN_TRAITS
    packed = PackedCopy().of(model)
    assert (reason := module_search.why_not(packed)) is not None
    # Weights that C cannot pack, and random features, are refused before the trait is looked at.
    assert trait in reason or name in ("sigma", "widths", "odd heads") or "not packed" in reason, reason
    wanted, actual = (generate_tokens(of, tokens[0].tolist(), search=Greedy(), max_tokens=6) for of in (model, packed))
    assert [rows[0].tokens for rows in wanted] == [rows[0].tokens for rows in actual]
    before = model(*tokens)
    fuse(model)
    torch.testing.assert_close(model(*tokens), before)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "source start"])
def test_language_models_and_encoders_have_them_too(name: str, tokens: tuple[Tensor, Tensor]) -> None:
    settings = {**SIZES, **VARIANTS[name][0]}
    lm = make_model(TransformerLMConfig(**settings, vocabulary=11)).eval()
    assert lm(tokens[0]).shape == (2, 5, 11)
    encoder = make_model(EncoderConfig(**{key: v for key, v in settings.items() if key != "tie_output"}, vocabulary=11))
    assert encoder(tokens[0]).shape[0] == 2


def test_positions_are_concatenated(tokens: tuple[Tensor, Tensor]) -> None:
    """L1: the first columns are the token's, the last ones the position's, together `dim`."""
    model = translator("concatenated")
    x = model.source(tokens[0])
    assert x.shape[-1] == 8 and model.source.embedding.weight.shape[1] == 5
    torch.testing.assert_close(x[..., :5], model.source.embedding(tokens[0]))
    torch.testing.assert_close(x[0, :, 5:], model.source.position.table[:5])


def test_counting_starts_at_one(tokens: tuple[Tensor, Tensor]) -> None:
    """PE(1, 2i) = sin(1 / 10000^(2i/d)) with i from 1: the first row of a model of width 8."""
    model = translator("from 1")
    row = (model.source(tokens[0]) - model.source.embedding(tokens[0]))[0, 0]
    angles = [1 / 10000 ** (2 * i / 8) for i in (1, 2, 3, 4)]
    wanted = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
    torch.testing.assert_close(row, torch.tensor(wanted, dtype=torch.float64), atol=1e-6, rtol=0)


def test_sigma_scales_the_rows() -> None:
    """F2: w from N(0, sigma² I), so the features with sigma are those of rows times sigma."""
    x = torch.randn(1, 1, 1, 3, 4, dtype=torch.float64)
    options: dict[str, Any] = {"dim": 4, "features": 6, "map": "plain", "normalize": False, "scale": 1.0}
    features = regard.RandomFeatures(**options, sigma=0.3).double()
    plain = regard.RandomFeatures(**options).double()
    assert torch.equal(features.W, plain.W)
    plain.W.mul_(0.3)
    torch.testing.assert_close(features(x)[0], plain(x)[0])
    with pytest.raises(ValueError, match="sigma is a standard deviation"):
        regard.RandomFeatures(dim=4, sigma=0)
    with pytest.raises(ValueError, match="no normalize, scale, learned_scale or sigma"):
        regard.RandomFeatures(dim=4, map="elu", sigma=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position_width": 3}, "position_width is a setting of position = 'learned'"),
        ({"position": "learned", "position_width": 3}, "set tie_output = false"),
        ({"position": "learned", "position_width": 8, "tie_output": False}, "leaves no columns of dim=8"),
        ({"position": "rotary", "position_start": 1}, "position_start is a setting of position = 'sinusoidal'"),
        ({"frequency_start": 2}, "frequency_start must be"),
        ({"attention_output": False, "d_v": 3}, "got 2 · 3 and dim=8"),
        ({"heads": 3, "d_k": 2}, "dim=8 does not split into heads=3"),
        (
            {
                "attention": "random-features",
                "random_features": {"map": "elu", "norm": False, "scale": False, "sigma": 2},
            },
            "sigma has no effect",
        ),
        (
            {
                "attention": "random-features",
                "attention_output": False,
                "random_features": {"exact_heads": ["encoder.0.self:0"]},
            },
            "attention_output must be true",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TransformerConfig(**{**SIZES, **settings}, **SIDES)


RECIPE = {
    "model.source_start": True,
    "model.attention_output": False,
    "model.position": "learned",
    "model.position_width": 4,
    "model.tie_output": False,
    "model.score": "fourier",
}


def test_a_recipe_reaches_them(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    """Trained, saved, loaded and looked at: the start token of the source is a token of the trace and of no word."""
    run = regard.train(make_recipe(), out=tmp_path / "run", overrides=RECIPE)
    face = run.load()
    config = face.model.config
    assert (config.source_start, config.attention_output, config.position_width) == (True, False, 4)
    translation = face.translate("un deux trois", attention=True)
    assert translation.source_ids[0] == START
    assert translation.attention.cross.shape[-1] == len(translation.source_ids)
    trace = trace_text(face, "un deux trois", target="TROIS DEUX UN")
    source = trace.axes["source"]
    assert source.tokens[0].special and source.tokens[0].word is None
    assert list(source.words) == ["un", "deux", "trois"]
    weights, words, _ = face.word_attention("un deux trois", "TROIS DEUX UN")
    assert words[:3] == ["un", "deux", "trois"]
    aligned = face.align("un deux trois", "TROIS DEUX UN", words=str.split)
    assert aligned.weights.shape == (4, 4)
    assert all(torch.isfinite(weight).all() for weight in weights.values())


@pytest.mark.parametrize("name", ["concatenated", "no output"])
def test_inside_shows_the_numbers_of_the_block(make_recipe: Callable[..., Path], tmp_path: Path, name: str) -> None:
    overrides = {f"model.{key}": value for key, value in VARIANTS[name][0].items()} | {"training.steps": 3}
    face = regard.train(make_recipe(), out=tmp_path / "run", overrides=overrides).load()
    sheet = inside_block(face, "un deux", stack="encoder", layer=0, token=0, head=0)
    boxes = {box["id"]: box for box in sheet["boxes"]}
    assert ("self.out" in boxes) == (name != "no output")
    widths = [boxes[part]["shape"][-1] for part in ("embedding", "position", "x")]
    assert widths == ([13, 3, 16] if name == "concatenated" else [16, 16, 16])
