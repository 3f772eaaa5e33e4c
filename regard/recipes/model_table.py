"""The [model] table of a recipe, checked against the Config of its kind of model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from regard.errors import unknown_name
from regard.models.config import Config, FrameConfig, ImageClassifierConfig, RecurrentConfig, StackConfig
from regard.models.config.random_features import FLAT_NAMES, TABLE as FEATURES, nest_settings
from regard.models.config.token_ids import TOKEN_IDS
from regard.models.presets import MODELS, PRESETS
from regard.settings import SettingError, unknown_key

PLACEHOLDER = 8  # tokens; stands for a vocabulary size that is not known yet


def model_keys() -> tuple[str, ...]:
    """Return every key of any kind of model, including those that depend on the tokenizer."""
    names = [name for schema, _ in MODELS.values() for name in _names(schema)]
    return ("kind", "preset", *dict.fromkeys(names), *FLAT_NAMES, *_from_tokenizer())


def checked_model(settings: Mapping[str, Any], *, otherwise: str) -> dict[str, Any]:
    """Return the table with its preset filled in; SettingError for a key or value that the model does not have.

    `otherwise` is the kind of model if the table has none. Flat settings of random features move to their table.
    """
    filled = nest_settings(_filled(settings), warn=True, stacklevel=6)
    kind = filled.get("kind", otherwise)
    if kind not in MODELS:
        raise SettingError("model.kind", unknown_name("kind of model", kind, tuple(MODELS)))
    schema = MODELS[kind][0]
    known = _names(schema)
    for key in filled:
        if key in _from_tokenizer():
            raise SettingError(f"model.{key}", f"model.{key} cannot be given: it comes from the tokenizer")
        if key not in ("kind", *known):
            flat = [name for name in settings if name in FLAT_NAMES] if key == FEATURES else []
            key = flat[0] if flat else key
            message = unknown_key(key, f"[model] of kind {kind!r}", ("kind", "preset", *known))
            raise SettingError(f"model.{key}", message)
    features = filled.get(FEATURES)
    if isinstance(features, Mapping) and isinstance(features.get("exact_heads"), str):
        filled[FEATURES] = {**features, "exact_heads": [features["exact_heads"]]}
    try:
        filled = schema.complete_kind(kind, filled)
    except SettingError as error:
        raise error.within("model") from error
    try:
        placeholders = {**_placeholders(schema, filled), **filled}
        model_config(kind, placeholders, source_vocabulary=PLACEHOLDER, target_vocabulary=PLACEHOLDER)
    except SettingError as error:
        candidates = [*map(_flat_name, error.keys), *error.keys]
        wrong = next((key for key in candidates if key in settings), error.key)
        raise SettingError(f"model.{wrong}", f"model: {error}") from error
    return filled


def model_config(kind: str, settings: Mapping[str, Any], *, source_vocabulary: int, target_vocabulary: int) -> Config:
    """Return the Config of a table with these vocabularies; a model with one vocabulary uses the target's."""
    sizes = {"source": source_vocabulary, "target": target_vocabulary}
    schema = MODELS[kind][0]
    completed = schema.complete_kind(kind, {key: value for key, value in settings.items() if key != "kind"})
    return schema.from_dict({**completed, **{name: sizes[side] for name, side in schema.vocabulary_fields().items()}})


def whole_model(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with every setting of its Config, including defaults."""
    return table_of(model_config(kind, settings, source_vocabulary=PLACEHOLDER, target_vocabulary=PLACEHOLDER))


def table_of(config: Config) -> dict[str, Any]:
    """Return a Config as a [model] table, without what comes from the tokenizer.

    Settings that are None are omitted, because TOML has no null.
    """
    settings = nest_settings(config.to_dict(), warn=False)
    table: dict[str, Any] = {"kind": config.kind}
    for key in _names(type(config)):
        value = settings.get(key)
        if isinstance(value, Mapping):
            table[key] = {name: part for name, part in value.items() if part is not None}
        elif value is not None:
            table[key] = value
    return table


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the preset, overridden by the given ones."""
    filled = dict(settings)
    if (name := filled.pop("preset", None)) is None:
        return filled
    if name not in PRESETS:
        raise SettingError("model.preset", unknown_name("preset", name, tuple(PRESETS)))
    schema, sizes = PRESETS[name]
    config = schema.from_dict({**sizes, **dict.fromkeys(schema.vocabulary_fields(), PLACEHOLDER)})
    if filled.get("kind", config.kind) != config.kind:
        raise SettingError("model.kind", f"preset {name!r} is a {config.kind}, but kind is {filled['kind']!r}")
    return {**table_of(config), **filled}


def _placeholders(schema: type[Config], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return sizes for settings without a value that are consistent with the others, so that no check fails on them."""
    if issubclass(schema, StackConfig):
        exact = "exact_heads" in settings.get(FEATURES, {})
        default = settings.get("dim", 64) if exact else 1  # exact_heads may name many heads
        heads = settings.get("heads", settings.get("kv_heads", default))
        if not isinstance(heads, int):
            return {}
        columns = [settings.get("d_v"), (settings.get("position_width") or 0) + 1]
        width = heads * next(size for size in columns if isinstance(size, int))
        if issubclass(schema, ImageClassifierConfig):
            # Sinusoids of two axes need four columns.
            return {"heads": heads, "dim": 4 * width, **_one_patch(settings)}
        return {"heads": heads, "dim": width, **(_one_patch(settings) if issubclass(schema, FrameConfig) else {})}
    sizes = _one_patch(settings) if issubclass(schema, FrameConfig) else {}
    if issubclass(schema, RecurrentConfig) and settings.get("tie_output"):
        width = settings.get("hidden", settings.get("embedding", 2))
        return {"hidden": width, "embedding": width, **sizes} if isinstance(width, int) else {}
    return sizes


def _one_patch(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of an image of one patch, for an image whose size is not known yet."""
    sides = [settings[key] for key in ("height", "width") if isinstance(settings.get(key), int)]
    patch = settings.get("patch") or (math.gcd(*sides) if sides else 2)
    return {"height": patch, "width": patch, "patch": patch}


def _names(schema: type[Config]) -> list[str]:
    """Return the settings that a recipe can give."""
    return [field.name for field in dataclasses.fields(schema) if field.name not in _from_tokenizer()]


def _from_tokenizer() -> tuple[str, ...]:
    """Return the settings that a recipe cannot give, because they come from the tokenizer."""
    sizes = dict.fromkeys(name for schema, _ in MODELS.values() for name in schema.vocabulary_fields())
    return (*sizes, "pad_id", *TOKEN_IDS)


def _flat_name(key: str) -> str:
    """Return the flat name of a setting of random features; of others the name itself."""
    flat = [name for name, nested in FLAT_NAMES.items() if key == f"{FEATURES}.{nested}"]
    return flat[0] if flat else key
