"""Random features in whole models: what a config can say of them, and every way to decode with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from regard.attention.linear.features import RandomFeatures, redraw_features
from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.decoding.cpu.quantize import pack_weights
from regard.decoding.engine import generate_tokens
from regard.decoding.searches.beam import Beam
from regard.decoding.searches.greedy import Greedy
from regard.decoding.searches.sample import Sample
from regard.decoding.searches.speculative import Speculative
from regard.errors import UsageError
from regard.models.config import EncoderConfig, TransformerConfig, TransformerLMConfig
from regard.models.config.exact_heads import pick_heads
from regard.models.folder import load_model, read_config, save_model
from regard.models.presets import make_model

STACK: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 4, "hidden": 16, "max_length": 64}


def random(**settings: Any) -> dict[str, Any]:
    """Settings of a model with random features."""
    return {"attention": "random-features", "random_features": {"features": 8, **settings}}


SIDES: dict[str, Any] = {"source_vocabulary": 12, "target_vocabulary": 12, "tie_output": False}
WORDS: dict[str, Any] = {"vocabulary": 12, "tie_output": False}
SOURCES = [[5, 6, 7, 8, 3], [9, 3], [4, 5, 6, 7, 8, 9, 10, 3]]
PROMPTS = [[5, 6], [4, 8, 9, 10, 11], [7]]

CONFIGS = {
    "random": TransformerConfig(**STACK, **SIDES, **random(), position="rotary"),
    "mixed": TransformerConfig(
        **STACK, **SIDES, **random(exact_heads=["encoder", "decoder.0.self:1,3", "decoder.1.cross:0"]), window=4
    ),
    "exact self": TransformerConfig(**STACK, **SIDES, **random(exact_heads=["*.*.self"]), position="alibi"),
    "lm": TransformerLMConfig(**STACK, **random(gate=True), **WORDS, kv_heads=2, position="rotary"),
    "lm window": TransformerLMConfig(
        **STACK, **random(exact_heads=["decoder.*.self:0-1"]), **WORDS, kv_heads=2, window=3
    ),
}


def make(name: str, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(3)
    model = make_model(CONFIGS[name]).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.add_(0.7 * torch.randn_like(parameter))
    return model


def inputs(model: Any, rows: list[int]) -> dict[str, Any]:
    if hasattr(model, "encode"):
        return {"source": [SOURCES[row] for row in rows]}
    return {"source": None, "prefixes": [PROMPTS[row] for row in rows]}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("search", [Greedy(), Beam(3), Sample(seed=1)], ids=["greedy", "beam", "sample"])
def test_cached_is_uncached_and_batched_is_single(name: str, search: Any) -> None:
    """Also with room for few rows at once, so that new texts join old ones."""
    model = make(name)
    want = generate_tokens(model, **inputs(model, [0, 1, 2]), search=search, max_tokens=9, cached=False)
    for room in (8192, 40):
        got = generate_tokens(model, **inputs(model, [0, 1, 2]), search=search, max_tokens=9, batch_tokens=room)
        for one, other in zip(got, want, strict=True):
            assert one[0].tokens == other[0].tokens
            assert one[0].logps == pytest.approx(other[0].logps, abs=1e-9)
    assert len({round(one[0].logps[0], 6) for one in want}) == 3  # what was read matters
    if not isinstance(search, Sample):  # whose draws go by the place of an input
        alone = generate_tokens(model, **inputs(model, [1]), search=search, max_tokens=9)
        assert alone[0][0].tokens == want[1][0].tokens


@pytest.mark.parametrize("name", ["mixed", "lm"])
def test_a_draft_may_have_states_that_cannot_be_cut(name: str) -> None:
    model = make(name)
    given = inputs(model, [0, 1, 2])
    want = generate_tokens(model, **given, search=Greedy(), max_tokens=9)
    search = Speculative(model)
    got = [text for (text,) in generate_tokens(model, **given, search=search, max_tokens=9)]
    assert [one.tokens for one in got] == [one[0].tokens for one in want]


@pytest.mark.parametrize("form", ["packed", "int8"])
def test_packed_weights_fall_back_to_the_modules(form: Any) -> None:
    """The step in C knows exact attention alone; the matrices are packed all the same."""
    model = make("mixed", torch.float32)
    want = generate_tokens(model, **inputs(model, [0, 1, 2]), search=Greedy(), max_tokens=9)
    packed = pack_weights(model, form)
    assert packed.c_decoder is None
    got = generate_tokens(packed, **inputs(model, [0, 1, 2]), search=Greedy(), max_tokens=9)
    if form == "packed":
        assert [one[0].tokens for one in got] == [one[0].tokens for one in want]


def test_a_folder_of_softmax_says_nothing_of_features(tmp_path: Path) -> None:
    """As those of earlier versions do not, and such a folder is softmax."""
    config = TransformerLMConfig(**STACK, vocabulary=12)
    told = read_config(save_model(make_model(config), tmp_path / "m"))["model"]
    assert not any(key.startswith("feature") or key in ("attention", "exact_heads", "window") for key in told)
    assert isinstance(load_model(tmp_path / "m").decoder.blocks[0].self_attention, MultiHeadAttention)  # type: ignore[union-attr]


def test_a_folder_keeps_draw_and_settings(tmp_path: Path) -> None:
    config = TransformerConfig(**STACK, **SIDES, **random(redraw=10, seed=2**24, exact_heads="encoder"))
    model = make_model(config).train()
    assert redraw_features(model, 25) == 4  # self and cross in two blocks
    for storage in ("float32", "bfloat16", "int8"):
        loaded = load_model(save_model(model, tmp_path / storage, storage=storage), dtype=torch.bfloat16)  # type: ignore[arg-type]
        assert loaded.config == config
        pairs = zip(model.modules(), loaded.modules(), strict=True)
        for old, new in [pair for pair in pairs if isinstance(pair[0], RandomFeatures)]:
            assert new.draw == old.draw == (old.draw[0], 2) and old.draw[0] >= 2**36
            assert new.drawn.dtype == torch.int64 and new.W.dtype == torch.bfloat16
            torch.testing.assert_close(new.W.float(), old.W, atol=0, rtol=2**-8)
    assert json.loads((tmp_path / "int8" / "config.json").read_text())["model"]["exact_heads"] == ["encoder"]


def test_every_layer_has_a_draw_of_its_own() -> None:
    draws = [
        module.draw[0]
        for seed in (0, 1)
        for module in make_model(TransformerConfig(**STACK, **SIDES, **random(seed=seed))).modules()
        if isinstance(module, RandomFeatures)
    ]
    assert len(draws) == 12 == len(set(draws))


def test_layers_are_what_exact_heads_says() -> None:
    blocks = make_model(CONFIGS["mixed"]).decoder.blocks  # type: ignore[union-attr]
    encoder = make_model(CONFIGS["mixed"]).encoder.blocks  # type: ignore[union-attr]
    assert all(type(block.self_attention) is MultiHeadAttention for block in encoder)
    assert all(block.self_attention.window == 4 for block in encoder)
    assert type(blocks[0].self_attention) is MixedAttention and blocks[0].self_attention.exact_heads == (1, 3)
    assert blocks[0].self_attention.exact.window == 4
    assert type(blocks[0].cross_attention) is RandomFeatureAttention
    assert type(blocks[1].self_attention) is RandomFeatureAttention
    assert blocks[1].cross_attention.exact_heads == (0,) and blocks[1].cross_attention.exact.window is None


@pytest.mark.parametrize(
    ("patterns", "layer", "want"),
    [
        ([], "decoder.0.self", ()),
        (["decoder"], "decoder.11.cross", tuple(range(8))),
        (["decoder"], "encoder.0.self", ()),
        (["decoder.1"], "decoder.11.cross", ()),
        (["decoder.*.cross:7,1-3"], "decoder.11.cross", (1, 2, 3, 7)),
        (["*.*.self:0", "decoder.0:5"], "decoder.0.self", (0, 5)),
    ],
)
def test_the_notation(patterns: list[str], layer: str, want: tuple[int, ...]) -> None:
    assert pick_heads(patterns, layer, 8) == want


LM, BOTH = TransformerLMConfig, TransformerConfig


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (LM, {"attention": "linear"}, "unknown attention 'linear' .known: softmax, random-features"),
        (LM, {"features": 8}, "features is a setting of attention = 'random-features'"),
        (
            LM,
            {"random_features": {"exact_heads": ["decoder"]}},
            "random_features.exact_heads is a setting of attention = 'random-features'",
        ),
        (LM, random(features=7), "features must be even, exp.u. and exp.-u. for each row of W: got 7"),
        (LM, random(map="hyperbolik"), "unknown random_features.map 'hyperbolik'; did you mean 'hyperbolic'"),
        (LM, {**random(), "position": "alibi"}, "position 'alibi' adds to scores, and random features have none"),
        (LM, {**random(), "qk_norm": True}, "qk_norm is for exact attention"),
        (LM, {**random(), "form": "slice"}, "form = 'slice' is for exact attention"),
        (LM, random(features=None, map="elu"), "norm and scale must be false"),
        (LM, random(exact_heads=["decoder"]), "leaves no head to random features"),
        (LM, random(exact_heads=["encoder"]), r"'encoder' names no layer .* decoder.0.self, decoder.1.self\)"),
        (LM, random(exact_heads=["decoder.2"]), "'decoder.2' names no layer"),
        (LM, random(exact_heads=["decoder.0.self:4"]), "names head 4, and a layer has heads 0 to 3"),
        (LM, random(exact_heads=["decoder:x"]), "behind the colon stand heads, .* got 'decoder:x'"),
        (LM, {**random(exact_heads=["decoder:0"]), "kv_heads": 2}, "in groups of 2 .kv_heads=2., and a group"),
        (
            BOTH,
            random(exact_heads=["*.*.self"], gate=True),
            "random_features.gate is for self-attention of a",
        ),
        (EncoderConfig, random(gate=True), "random_features.gate is for self-attention of a decoder"),
    ],
)
def test_settings_that_cannot_be(kind: Any, settings: dict[str, Any], message: str) -> None:
    sides = SIDES if kind is BOTH else {"vocabulary": 12}
    with pytest.raises(UsageError, match=message):
        kind.from_dict({**STACK, **sides, **settings})


def test_blocks_compile_whole_and_last_from_draw_to_draw() -> None:
    torch.compiler.reset()
    model: Any = make_model(TransformerConfig(**STACK, **SIDES, **random(redraw=1), dropout=0.0)).train()
    source, target = torch.randint(4, 12, (2, 3, 7)).unbind()
    wants = []
    for step in range(2):
        redraw_features(model, step)
        wants.append(model(source, target))
    graphs = CompileCounter()
    for block in [*model.encoder.blocks, *model.decoder.blocks]:
        block.compile(backend=graphs, fullgraph=True)
    for step, want in enumerate(wants):
        redraw_features(model, step)
        torch.testing.assert_close(model(source, target), want)
        if step == 0:
            first = graphs.frame_count
    assert graphs.frame_count == first
    torch.compiler.reset()
