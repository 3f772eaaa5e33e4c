"""Converting a trained model: what is measured is true, what is swapped keeps its weights, what is learnt helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner, Result

from regard.attention.dispatch import attend
from regard.attention.linear import layer as random_layer
from regard.attention.linear.feature_maps import Hyperbolic
from regard.attention.linear.features import RandomFeatures
from regard.attention.linear.mixed import MixedAttention
from regard.attention.linear.random_rows import draw_rows
from regard.attention.multihead import MultiHeadAttention
from regard.cli import app
from regard.convert.conversion import convert_model
from regard.convert.head_analysis import (
    FACTORS,
    Call,
    MeasuredHead,
    exact_layers,
    layer_calls,
    measure_layer,
    project,
    squared_error,
)
from regard.convert.sample_texts import calibration_batches, held_out
from regard.convert.swap_heads import choose_heads, random_layers, swap_heads
from regard.errors import DataError, UsageError
from regard.models.config import EncoderConfig, RecurrentLMConfig, TransformerConfig, TransformerLMConfig
from regard.models.folder import read_config, save_model
from regard.models.presets import make_model
from regard.tasks.loading import load
from regard.text.tokenizers.subwords import train_subwords
from regard.text.tokenizers.tokenizer import tokenizer_files

LINES = ["le chat noir dort dans la maison", "Jane visite l'Afrique en septembre.", "le chat visite Jane", "Jane dort"]
SIZES: dict[str, Any] = {"layers": 2, "dim": 16, "heads": 4, "hidden": 24, "dropout": 0.0}
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """`make(kind, **settings)`: a folder with a model whose heads are flat, but for those that `sharp` names."""
    plain = train_subwords(LINES, size=None, kind="unigram", lossless=False)
    lossless = train_subwords(LINES, size=None, kind="unigram", lossless=True)

    def made(kind: str = "transformer", *, sharp: tuple[tuple[str, int], ...] = (), **settings: Any) -> str:
        sides = {"source_vocabulary": plain.size, "target_vocabulary": plain.size}
        config: Any = {
            "transformer": lambda: TransformerConfig(**{**SIZES, **sides, **settings}),
            "transformer-lm": lambda: TransformerLMConfig(**{**SIZES, "vocabulary": lossless.size, **settings}),
            "encoder": lambda: EncoderConfig(**{**SIZES, "vocabulary": plain.size, **settings}),
            "rnn-lm": lambda: RecurrentLMConfig(vocabulary=lossless.size, embedding=8, hidden=8),
        }[kind]()
        model = make_model(config)
        for name, layer in exact_layers(model).items():
            scale_scores(layer, 0.1, range(layer.heads))
            scale_scores(layer, 100.0, [head for where, head in sharp if where == name])
        tokenizer = lossless if kind.endswith("-lm") else plain
        info = {"context": 16} if kind.endswith("-lm") else {"languages": {"source": "fr"}, "scores": {"loss": 1.0}}
        return str(save_model(model, tmp_path / kind, files=tokenizer_files(tokenizer, tokenizer), info=info))

    return made


def scale_scores(layer: MultiHeadAttention, factor: float, heads: Sequence[int]) -> None:
    """Multiply q·k of these heads, half of it in the queries and half in the keys."""
    group, weight = layer.heads // layer.kv_heads, layer.input.weight
    rows = [(head, 0) for head in heads] + [(head // group, layer.heads) for head in heads if head % group == 0]
    with torch.no_grad():
        for number, first in rows:
            weight[(first + number) * layer.d_k :][: layer.d_k] *= factor**0.5  # type: ignore[union-attr,index]


def head_of(layer: str, head: int, **facts: Any) -> MeasuredHead:
    usual: dict[str, Any] = {"spread": 1.0, "variance": 1.0, "error": 0.1, "factor": 1.0, "start": 0.1, "needed": 64}
    return MeasuredHead(layer, head, **{**usual, **facts})


def seen_by(folder: str) -> tuple[Any, list[dict[str, Call]]]:
    face: Any = load(folder, device="cpu")
    return face.model, [layer_calls(face.model, batch) for batch in calibration_batches(face, LINES)]


# A Transformer has a sharp head too, in the next test.
@pytest.mark.parametrize("kind", ["transformer-lm", "encoder", pytest.param("transformer", marks=pytest.mark.slow)])
def test_flat_heads_convert_within_the_target(make: Make, kind: str, tmp_path: Path) -> None:
    found = convert_model(make(kind), LINES, target=0.2, features=256, steps=0, device="cpu")
    assert found.model is not None and all(head.random and head.error <= 0.2 for head in found.heads)
    assert all(head.distilled is not None and head.distilled < 0.4 for head in found.heads)  # this draw, not the mean
    assert len(found.heads) == {"transformer": 24, "transformer-lm": 8, "encoder": 8}[kind]
    after: Any = load(found.save(tmp_path / "out"), device="cpu")
    batch = calibration_batches(found.face, LINES)[0]
    one, other = found.face.model(*batch), after.model(*batch)
    assert 0 < (one - other).norm() / one.norm() < 0.1


def test_a_sharp_head_stays_exact(make: Make, tmp_path: Path) -> None:
    folder = make(sharp=(("decoder.1.cross", 2), ("encoder.0.self", 0), ("encoder.0.self", 3)))
    found = convert_model(folder, LINES, target=0.2, features=256, steps=0, device="cpu")
    exact = [head for head in found.heads if not head.random]
    assert [head.name for head in exact] == ["encoder.0.self:0", "encoder.0.self:3", "decoder.1.cross:2"]
    flat = [head for head in found.heads if head.random]
    assert min(head.spread for head in exact) > 2 * max(head.spread for head in flat)
    assert min(head.variance for head in exact) > 100 * max(head.variance for head in flat)
    assert all(head.needed is None or head.needed > 256 for head in exact) and all(head.needed for head in flat)
    config = read_config(found.save(tmp_path / "out"))
    assert config["model"]["exact_heads"] == ["encoder.0.self:0,3", "decoder.1.cross:2"]
    assert config["languages"] == {"source": "fr"} and "scores" not in config
    translator: Any = load(tmp_path / "out", device="cpu")
    assert isinstance(translator.model.decoder.blocks[1].cross_attention, MixedAttention)
    assert translator.translate(LINES, beam=2)[0].text is not None
    assert "| decoder.1.cross:2 |" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("transformer", {"kv_heads": 2, "bias": False}),
        ("transformer-lm", {"kv_heads": 1, "position": "rotary"}),
        ("transformer-lm", {}),
        pytest.param("transformer", {}, marks=pytest.mark.slow),
        pytest.param("transformer", {"kv_heads": 1, "position": "rotary"}, marks=pytest.mark.slow),
        pytest.param("transformer-lm", {"kv_heads": 2, "bias": False}, marks=pytest.mark.slow),
    ],
)
def test_swapped_heads_keep_their_weights(
    make: Make, monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, Any]
) -> None:
    """With exact attention in place of the estimate, the converted model is the model."""
    model, _ = seen_by(make(kind, **settings))
    group = 4 // settings.get("kv_heads", 4)
    chosen = {"decoder.0.self": range(4), "decoder.1.self": {1: (0, 3), 2: (0, 1), 4: range(4)}[group]}
    heads = [
        head_of(name, head, random=head in chosen.get(name, ())) for name in exact_layers(model) for head in range(4)
    ]
    swapped = swap_heads(model, heads, features=16, map="hyperbolic", seed=3)
    assert set(random_layers(swapped)) == set(chosen)
    monkeypatch.setattr(
        random_layer.RandomFeatureAttention,
        "attend",
        lambda layer, q, k, v, *, features, mask, causal, gate, state: attend(q, k, v, mask=mask, causal=causal),
    )
    tokens = torch.randint(
        4, model.config.__dict__.get("vocabulary", model.config.__dict__.get("target_vocabulary")), (3, 9)
    )
    batch = (tokens, tokens) if kind == "transformer" else (tokens,)
    torch.testing.assert_close(swapped(*batch), model(*batch))


def test_factors_are_where_heads_begin(make: Make) -> None:
    model, _ = seen_by(make("encoder", kv_heads=2))
    heads = [head_of(name, head, random=head >= 2, factor=0.25) for name in exact_layers(model) for head in range(4)]
    for layer in random_layers(swap_heads(model, heads, features=16, map="positive", seed=0)).values():
        assert isinstance(layer, MixedAttention)
        sigma = layer.random.features.sigma
        assert sigma is not None and torch.equal(sigma, torch.full((1, 4), 0.5))  # 0.5 · q and 0.5 · k: 0.25 · q·k


def test_the_predicted_variance_is_that_of_the_estimates(make: Make) -> None:
    """Of 1,500 draws of independent rows, on the queries and keys of a head; within 20%."""
    model, calls = seen_by(make("encoder", layers=1))
    layer = exact_layers(model)["encoder.0.self"]
    call = calls[0]["encoder.0.self"]
    q, k, v = project(layer, call)
    x, y = (one.double() / math.sqrt(2) for one in (q, k))  # d_k = 4
    phi, W = Hyperbolic(), draw_rows(1500 * 8, 4, kind="independent").view(1500, 1, 1, 8, 4)
    (of_x, level_x), (of_y, level_y) = phi(x, W), phi(y, W)
    ratio = (of_x * level_x.exp()[..., None]) @ (of_y * level_y.exp()[..., None]).mT / (x @ y.mT).exp()
    _, weights = attend(q, k, v, mask=call.mask, return_weights=True)
    measured = (weights * call.text * ratio.var(0)).sum((0, 2, 3)) / call.text.sum()
    heads = measure_layer("encoder.0.self", layer, [call], features=16, map="hyperbolic", target=0.2)
    predicted = torch.tensor([head.variance for head in heads], dtype=torch.float64)
    torch.testing.assert_close(predicted, measured, rtol=0.2, atol=0.0)


def measured_error(layer: MultiHeadAttention, calls: list[Call], features: int, seeds: range) -> Tensor:
    """Relative errors (H,), computed here anew: by the reference, all draws other than those of the code."""
    found = []
    for seed in seeds:
        phi = RandomFeatures(dim=layer.d_k, features=features, heads=layer.kv_heads, normalize=False, seed=seed)
        for call in calls:
            q, k, v = project(layer, call)
            exact = attend(q, k, v, mask=call.mask, causal=call.causal, backend="reference")
            estimate = random_layer.attend_features(
                q, k, v, features=phi, mask=call.mask, causal=call.causal, backend="reference"
            )
            off, size = ((one * call.text).square().sum((0, 2, 3)) for one in (estimate - exact, exact))
            found.append(off / size)
    return torch.stack(found).mean(0).sqrt()


def test_features_needed_are_enough_and_the_law_is_minus_one(make: Make) -> None:
    model, batches = seen_by(make(layers=1))
    for name in ("encoder.0.self", "decoder.0.self"):
        layer, calls = exact_layers(model)[name], [batch[name] for batch in batches]
        heads = measure_layer(name, layer, calls, features=64, map="hyperbolic", target=0.1)
        for number in {head.needed for head in heads} - {None}:
            assert number is not None and number & (number - 1) == 0
            found = measured_error(layer, calls, number, range(50, 62))
            assert all(found[head.head] < 0.125 for head in heads if head.needed == number)  # 12 other draws
        few, many = (measured_error(layer, calls, features, range(50, 74)) for features in (32, 256))
        slope = ((many / few).square().log() / math.log(8)).mean()  # of log MSE against log F
        assert -1.3 < slope < -0.7  # chance is large with heads of width 4


def test_more_features_are_taken_where_the_law_promised_too_much() -> None:
    from regard.convert.head_analysis import _needed

    asked = []

    def measured(features: int) -> Tensor:
        asked.append(features)
        return torch.tensor([0.11 if features < 256 else 0.09, 0.05, 9.0, 1.0])

    errors = torch.tensor([0.1, 0.025, 9.0, 0.5])
    assert _needed(errors, measured, features=64, target=0.1) == [256, 16, None, None]
    assert asked == [16, 64, 128, 256, 2048, 4096]


def test_a_flatter_start_for_sharp_heads(make: Make) -> None:
    model, batches = seen_by(make("encoder", layers=1, sharp=(("encoder.0.self", 1),)))
    layer, calls = exact_layers(model)["encoder.0.self"], [batch["encoder.0.self"] for batch in batches]
    heads = measure_layer("encoder.0.self", layer, calls, features=1024, map="hyperbolic", target=0.1)
    assert heads[1].factor < heads[0].factor == FACTORS[0] and heads[1].start < heads[1].error


def test_distilling_lowers_the_error(make: Make) -> None:
    options: dict[str, Any] = {"heads": ["encoder.1:1,2"], "features": 32, "device": "cpu"}
    folder = make("encoder", sharp=(("encoder.1.self", 1), ("encoder.1.self", 2)))
    plain, taught = (convert_model(folder, LINES, steps=steps, **options) for steps in (0, 80))
    assert {head.layer for head in taught.heads} == {"encoder.1.self"}  # only what is named is measured
    for before, after in zip(plain.heads, taught.heads, strict=True):
        assert (before.distilled is None) == (after.distilled is None) == (before.head in (0, 3))
        assert before.distilled is None or after.distilled is None or after.distilled < 0.9 * before.distilled
    exact: dict[str, Tensor] = taught.face.model.state_dict()
    student: dict[str, Tensor] = taught.model.state_dict()  # type: ignore[union-attr]
    changed = {name for name in exact if name not in student or not torch.equal(exact[name], student[name])}
    layer = "encoder.blocks.1.self_attention"  # nothing else, and W^O is only in another order
    assert changed == {f"{layer}.{name}" for name in ("input.weight", "input.bias", "output.weight")}
    assert torch.equal(exact[f"{layer}.output.weight"].sort(1)[0], student[f"{layer}.output.weight"].sort(1)[0])


def test_padding_counts_for_nothing(make: Make) -> None:
    face: Any = load(make(), device="cpu")
    (batch,) = calibration_batches(face, LINES)
    assert (batch[0] == 0).any() and (batch[1] == 0).any()
    calls = layer_calls(face.model, batch)
    assert torch.equal(calls["encoder.1.self"].text[:, 0, :, 0], batch[0] != 0)
    assert torch.equal(calls["decoder.1.cross"].text[:, 0, :, 0], batch[1] != 0)
    off = torch.zeros(len(batch[1]), 4, batch[1].shape[1], 4)
    off[~calls["decoder.1.cross"].text.squeeze(3).expand(-1, 4, -1)] = 9.0
    assert torch.equal(squared_error(1.0 + off, torch.ones_like(off), calls["decoder.1.cross"].text), torch.zeros(4))
    assert not any(module._forward_pre_hooks for module in face.model.modules())


def test_groups_go_together() -> None:
    config = EncoderConfig(vocabulary=9, layers=1, dim=16, heads=4, kv_heads=2)
    heads = [head_of("encoder.0.self", head, start=start) for head, start in enumerate((0.1, 0.4, 0.1, 0.1))]
    assert [head.random for head in choose_heads(["auto"], heads, config, 0.2)] == [False, False, True, True]
    assert [head.random for head in choose_heads(["encoder:0,1"], heads, config, 0.2)] == [True, True, False, False]
    assert all(head.random for head in choose_heads(["all"], heads, config, 0.2))
    heads[0] = head_of("encoder.0.self", 0, start=math.nan)
    assert not choose_heads(["auto"], heads, config, 0.5)[0].random


def test_what_is_measured_is_not_learnt() -> None:
    for count in (1, 4, 5, 40, 200):
        batches = [(torch.tensor(number),) for number in range(count)]
        learnt, measured = held_out(batches)
        assert learnt and 1 <= len(measured) <= 4
        if count > 4:
            assert len(learnt) + len(measured) == count and not {id(one) for one in learnt} & {
                id(one) for one in measured
            }


@pytest.mark.parametrize(
    ("kind", "settings", "options", "message"),
    [
        ("rnn-lm", {}, {}, "kind 'rnn-lm' has no heads: transformer, transformer-lm and encoder have"),
        ("transformer-lm", {"position": "alibi"}, {}, "position 'alibi' depends on the distance between key and query"),
        ("encoder", {"window": 4}, {}, "a window depends on the distance"),
        ("transformer", {"position": "relative"}, {"heads": ["encoder"]}, "'encoder' names no layer"),
        ("encoder", {"qk_norm": True}, {}, "qk_norm is for exact attention"),
        ("encoder", {}, {"features": 7}, "features must be even.* got 7"),
        ("encoder", {}, {"map": "elu"}, "unknown feature map 'elu'"),
        ("encoder", {}, {"target": 0.0}, "target error must be greater than 0"),
        ("encoder", {}, {"heads": ["decoder.0"]}, "heads: 'decoder.0' names no layer of this model"),
        ("encoder", {}, {"heads": ["encoder.0:9"]}, "heads: 'encoder.0:9' names head 9"),
        ("encoder", {"kv_heads": 2}, {"heads": ["encoder.0:1"]}, "share keys in groups of 2"),
    ],
)
def test_what_cannot_be_converted(
    make: Make, kind: str, settings: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        convert_model(make(kind, **settings), LINES, device="cpu", **options)


def test_more_that_cannot_be(make: Make, tmp_path: Path) -> None:
    folder = make("encoder", layers=1)
    with pytest.raises(DataError, match="no text to calibrate with"):
        convert_model(folder, ["", "  "], device="cpu")
    nothing = convert_model(folder, LINES, target=1e-4, device="cpu")
    with pytest.raises(UsageError, match=r"no head was swapped: with 128 features none is within 0\.0001"):
        nothing.save(tmp_path / "none")
    converted = convert_model(folder, LINES, heads=["all"], steps=0, device="cpu").save(tmp_path / "converted")
    with pytest.raises(UsageError, match="already has random features"):
        convert_model(converted, LINES, device="cpu")


def test_cross_attention_of_models_with_relative_positions(make: Make) -> None:
    found = convert_model(make(position="relative", layers=1), LINES, heads=["all"], steps=0, device="cpu")
    assert {head.layer for head in found.heads} == {"decoder.0.cross"} and found.model is not None


def test_training_on(make_recipe: Callable[..., Path], tmp_path: Path) -> None:
    """By the recipe of the run, from what was converted; the heads stay what they are."""
    assert invoke("train", make_recipe("encoder"), "--out", tmp_path / "run", "-q").exit_code == 0
    options = ("--heads", "encoder.0:0", "--features", "8", "--distil", "0", "--fine-tune", "2", "--device", "cpu")
    result = invoke("convert", tmp_path / "run", tmp_path / "out", "--text", tmp_path / "a.fr", *options)
    assert result.exit_code == 0, result.stderr
    tuned = read_config(tmp_path / "out-tuned")
    assert tuned["model"] == read_config(tmp_path / "out")["model"]
    assert tuned["model"]["exact_heads"] == ["encoder.0.self:1"] and tuned["recipe"]["training"]["steps"] == 2
    one, other = (load(tmp_path / name).model.state_dict() for name in ("out", "out-tuned"))
    assert any(not one[name].equal(other[name]) for name in one)


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
