"""The settings of models: every wrong value is one clear error, and they survive the way through JSON."""

from __future__ import annotations

import dataclasses
import json
import warnings
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import UsageError
from regard.models.config import (
    AnswererConfig,
    CaptionerConfig,
    ClassifierConfig,
    Config,
    EncoderConfig,
    ForecasterConfig,
    ImageClassifierConfig,
    LinearForecasterConfig,
    ListenAttendSpellConfig,
    RecurrentCaptionerConfig,
    RecurrentLMConfig,
    RecurrentTranslatorConfig,
    SpeechCTCConfig,
    SpeechRecognizerConfig,
    SummarizerConfig,
    TransformerConfig,
    TransformerLMConfig,
    WordVectorConfig,
)
from regard.models.config.random_features import RandomFeaturesConfig
from regard.models.presets import MODELS, make_model
from regard.settings import SettingError

NEEDED: dict[type[Config], dict[str, Any]] = {
    TransformerConfig: {"source_vocabulary": 10, "target_vocabulary": 10},
    TransformerLMConfig: {"vocabulary": 10},
    EncoderConfig: {"vocabulary": 10},
    ClassifierConfig: {"source_vocabulary": 10, "target_vocabulary": 10},
    SummarizerConfig: {"source_vocabulary": 10, "target_vocabulary": 10},
    AnswererConfig: {"source_vocabulary": 10, "target_vocabulary": 10},
    RecurrentLMConfig: {"vocabulary": 10},
    RecurrentTranslatorConfig: {"source_vocabulary": 10, "target_vocabulary": 10},
    ImageClassifierConfig: {"vocabulary": 10},
    CaptionerConfig: {"target_vocabulary": 10},
    RecurrentCaptionerConfig: {"target_vocabulary": 10},
    ForecasterConfig: {},
    LinearForecasterConfig: {},
    SpeechRecognizerConfig: {"vocabulary": 10},
    SpeechCTCConfig: {"vocabulary": 10},
    ListenAttendSpellConfig: {"target_vocabulary": 10},
}
CHOICE = ("activation", "norm", "order", "position", "score", "form", "pooling", "cell", "attention", "style", "stem")
CHOICE += ("rope_layout", "rope_scaling", "scaling", "front_end", "position_layout", "decoder_self")
ZERO = ("local_layers", "pad_id", "position_start", "frequency_start", "unknown_id", "start_id")  # count from 0
POSITIVE = ("norm_eps", "rope_", "position_base")  # numbers above 0
every_config = pytest.mark.parametrize("kind", NEEDED)


def wrong_values(field: dataclasses.Field[Any]) -> list[Any]:
    """What a setting of that type refuses; the annotation is the independent statement of its type."""
    if field.name in CHOICE:
        return ["nonsense", "", 3, ["relu"], {}]
    if field.type in ("bool", "bool | None"):
        return [0, 1, "true", "no", []]
    if field.type == "tuple[int, ...]":
        return [3, -1, [-1], [2**24 + 1], [1.0], [True], "ab"]
    if field.name.startswith(POSITIVE) and field.type in ("float", "float | None"):
        return [0.0, -0.1, float("nan"), float("inf"), "0.1", True, []]
    if field.type == "float":
        return [-0.1, 1.0, 1, float("nan"), float("inf"), "0.1", True, []]
    if field.type == "RandomFeaturesConfig":
        return [3, True, [3], "plain"]
    assert field.type in ("int", "int | None")
    return [-1, 2**24 + 1, 10**30, 1.0, "8", True, float("nan"), []] + ([] if field.name in ZERO else [0])


@every_config
def test_a_wrong_value_is_an_error_that_names_it(kind: type[Config]) -> None:
    for field in dataclasses.fields(kind):
        if (kind, field.name) == (ListenAttendSpellConfig, "source_vocabulary"):
            continue  # always 0: the source is sound
        wrongs = wrong_values(field) + ([] if "None" in str(field.type) else [None])
        for wrong in wrongs:
            with pytest.raises(UsageError, match=field.name) as caught:
                kind.from_dict({**NEEDED[kind], field.name: wrong})
            shown = repr(wrong).strip("[]") if str(field.type).startswith("tuple") else repr(wrong)
            assert shown in str(caught.value)


@every_config
def test_unknown_settings_name_the_nearest(kind: type[Config]) -> None:
    for field in dataclasses.fields(kind):
        with pytest.raises(UsageError, match=f"unknown setting of {kind.__name__} '{field.name}x'; did you mean"):
            kind.from_dict({**NEEDED[kind], f"{field.name}x": 1})


@pytest.mark.parametrize("kind", NEEDED)
def test_missing_settings(kind: type[Config]) -> None:
    for name in NEEDED[kind]:
        rest = {key: value for key, value in NEEDED[kind].items() if key != name}
        with pytest.raises(UsageError, match=f"{kind.__name__} needs the setting '{name}'"):
            kind.from_dict(rest)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (TransformerLMConfig, {"dim": 10, "heads": 4}, r"dim=10 does not split into heads=4"),
        (
            TransformerConfig,
            {"share_embeddings": True, "target_vocabulary": 11},
            r"share_embeddings needs one vocabulary .* source_vocabulary=10 and target_vocabulary=11",
        ),
        (RecurrentLMConfig, {"tie_output": True}, r"embedding must equal hidden; got embedding=256, hidden=512"),
        (RecurrentTranslatorConfig, {"attention": "none", "input_feeding": True, "style": "luong"}, "input_feeding"),
        (RecurrentTranslatorConfig, {"input_feeding": True}, "input_feeding belongs to style 'luong'"),
        (RecurrentTranslatorConfig, {"hidden": 7}, "hidden=7 is odd.*give encoder_hidden"),
        (TransformerConfig, {"layers": 1025}, "layers must be a whole number from 1 to 1024, got 1025"),
        (TransformerConfig, {"heads": 2048, "dim": 2048}, "heads must be a whole number from 1 to 1024"),
        (TransformerConfig, {"position": "rotari"}, "unknown position 'rotari'; did you mean 'rotary'"),
        (TransformerConfig, {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        (TransformerConfig, {"bias": "yes"}, "bias must be true or false, got 'yes'"),
    ],
)
def test_messages(kind: type[Config], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kind.from_dict({**NEEDED[kind], **settings})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TransformerLMConfig(vocabulary=9, dim=12, heads=4, kv_heads=2, form="slice"), "form 'slice'"),
        (TransformerLMConfig(vocabulary=9, dim=12, heads=4, position="rotary"), "head_dim.*even"),
        (
            RecurrentTranslatorConfig(
                source_vocabulary=9, target_vocabulary=9, hidden=8, encoder_hidden=3, attention="dot"
            ),
            "query_dim=8 and key_dim=6",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused_when_the_model_is_made(config: Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model(config)


def test_every_config_survives_json(any_config: Config) -> None:
    again = type(any_config).from_dict(json.loads(json.dumps(any_config.to_dict())))
    assert again == any_config
    kind, network = MODELS[any_config.kind]
    assert kind is type(any_config) and type(make_model(any_config)) is network


sizes = st.integers(1, 2**24)


@given(vocabulary=sizes, layers=st.integers(1, 1024), dim=sizes, dropout=st.floats(0, 1, exclude_max=True))
def test_what_is_in_range_is_taken_as_it_is(vocabulary: int, layers: int, dim: int, dropout: float) -> None:
    settings = {"vocabulary": vocabulary, "layers": layers, "dim": dim, "heads": 1, "dropout": dropout}
    config = TransformerLMConfig.from_dict(settings)
    assert settings.items() <= config.to_dict().items()


def test_a_config_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerLMConfig(vocabulary=9).dim = 4  # type: ignore[misc]


def test_kinds() -> None:
    sides = NEEDED[RecurrentTranslatorConfig]
    assert RecurrentTranslatorConfig(**sides).kind == "rnn-attention"
    assert RecurrentTranslatorConfig(**sides, attention="none").kind == "rnn-seq2seq"
    kinds = {kind(**needed).kind for kind, needed in NEEDED.items()} | {"rnn-seq2seq"}
    assert kinds | {WordVectorConfig(vocabulary=10).kind} == set(MODELS)


def test_make_model_wants_a_config() -> None:
    with pytest.raises(TypeError, match="config must be one of regard's model configs, got dict"):
        make_model({"vocabulary": 10})  # type: ignore[arg-type]


def test_groups_of_heads_are_checked_when_the_settings_are_made() -> None:
    with pytest.raises(UsageError, match="heads=8 is not a multiple of kv_heads=3"):
        TransformerLMConfig(vocabulary=9, kv_heads=3)


# The table of random features, and the flat names that its settings had before.

FEATURES = {
    "exact_heads": ["decoder.0"], "features": 64, "map": "positive", "draw": "independent", "norm": False,
    "scale": False, "gate": True, "redraw": 5, "seed": 3,
}  # fmt: skip
FLAT = {
    "exact_heads": ["decoder.0"], "features": 64, "feature_map": "positive", "feature_draw": "independent",
    "feature_norm": False, "feature_scale": False, "feature_gate": True, "feature_redraw": 5, "feature_seed": 3,
}  # fmt: skip
RANDOM: dict[str, Any] = {"vocabulary": 10, "attention": "random-features"}


def test_flat_names_of_random_features_still_work() -> None:
    config = TransformerLMConfig(**RANDOM, random_features=RandomFeaturesConfig(**FEATURES))
    assert TransformerLMConfig(**RANDOM, random_features=FEATURES) == config
    with pytest.warns(DeprecationWarning, match="feature_map is random_features.map"):
        assert TransformerLMConfig(**RANDOM, **FLAT) == config
    with pytest.warns(DeprecationWarning, match="feature_seed is random_features.seed"):
        assert dataclasses.replace(config, feature_seed=4).random_features.seed == 4
    with pytest.warns(DeprecationWarning, match="feature_map is random_features.map now"):
        assert config.feature_map == "positive"
    with pytest.raises(AttributeError, match="has no attribute 'feature_mapp'"):
        getattr(config, "feature_mapp")  # noqa: B009


def test_config_json_has_the_flat_names_and_is_read_without_a_warning() -> None:
    config = TransformerLMConfig(**RANDOM, random_features=FEATURES)
    settings = json.loads(json.dumps(config.to_dict()))
    assert FLAT.items() <= settings.items() and "random_features" not in settings
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TransformerLMConfig.from_dict(settings) == config
        assert TransformerLMConfig.from_dict({**RANDOM, "random_features": FEATURES}) == config


@pytest.mark.parametrize("field", dataclasses.fields(RandomFeaturesConfig), ids=lambda field: field.name)
def test_a_wrong_value_of_random_features_names_its_setting(field: dataclasses.Field[Any]) -> None:
    special = {"exact_heads": [3, True, {}], "sigma": ["nonsense", -1, 0, 2**24 + 1, float("nan"), {}]}
    wrongs = special.get(field.name, ["nonsense", -1, 2**24 + 1, 1.5, {}])
    for wrong in wrongs:
        with pytest.raises(SettingError, match=f"random_features.{field.name}") as caught:
            TransformerLMConfig.from_dict({**RANDOM, "random_features": {field.name: wrong}})
        assert caught.value.key == f"random_features.{field.name}" and repr(wrong) in str(caught.value)
    with pytest.raises(
        SettingError, match=f"unknown setting of random_features '{field.name}x'; did you mean"
    ) as caught:
        TransformerLMConfig.from_dict({**RANDOM, "random_features": {f"{field.name}x": 1}})
    assert caught.value.key == f"random_features.{field.name}x"


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"dim": 10, "heads": 4}, ("dim", "heads")),
        ({"heads": 4, "dim": 12, "kv_heads": 3}, ("heads", "kv_heads")),
        ({"layers": 0}, ("layers",)),
        ({"position": "rotari"}, ("position",)),
        ({"colour": 1}, ("colour",)),
        ({"random_features": {"gate": True}}, ("random_features.gate", "random_features")),
    ],
)
def test_errors_carry_the_settings(settings: dict[str, Any], keys: tuple[str, ...]) -> None:
    with pytest.raises(SettingError) as caught:
        TransformerLMConfig.from_dict({"vocabulary": 10, **settings})
    assert caught.value.keys == keys and caught.value.key == keys[0]
