"""The [model] table of a recipe, held against the Config of its kind of model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from regard.errors import UsageError, unknown_name
from regard.models.config import Config, StackConfig
from regard.models.presets import MODELS, PRESETS
from regard.training.recipe.settings import RecipeError, unknown_key

# What a recipe cannot give, because it comes from the tokenizer.
VOCABULARIES = ("vocabulary", "source_vocabulary", "target_vocabulary")
FROM_TOKENIZER = (*VOCABULARIES, "pad_id")


def model_keys() -> tuple[str, ...]:
    """Every setting that some kind of model has."""
    names = [name for schema, _ in MODELS.values() for name in _names(schema)]
    return ("kind", "preset", *dict.fromkeys(names), *FROM_TOKENIZER)


def checked_model(settings: Mapping[str, Any], *, otherwise: str) -> dict[str, Any]:
    """The table with its preset filled in; RecipeError for a key or value that the model does not have.

    `otherwise` is the kind that the settings are held against when they name none.
    """
    filled = _filled(settings)
    kind = filled.get("kind", otherwise)
    if kind not in MODELS:
        raise RecipeError("model.kind", unknown_name("kind of model", kind, tuple(MODELS)))
    known = _names(MODELS[kind][0])
    for key in filled:
        if key in FROM_TOKENIZER:
            raise RecipeError(f"model.{key}", f"model.{key} cannot be given: it comes from the tokenizer")
        if key not in ("kind", *known):
            raise RecipeError(f"model.{key}", unknown_key(key, f"[model] of kind {kind!r}", ("kind", "preset", *known)))
    if isinstance(filled.get("exact_heads"), str):
        filled["exact_heads"] = [filled["exact_heads"]]
    if kind == "rnn-seq2seq":
        filled.setdefault("attention", "none")
    if kind.startswith("rnn-") and filled.get("attention", "none") != "none" and kind != "rnn-attention":
        raise RecipeError("model.attention", f"kind = {kind!r} has no attention: take 'rnn-attention'")
    if kind == "rnn-attention" and filled.get("attention") == "none":
        raise RecipeError("model.attention", "attention = 'none' is kind = 'rnn-seq2seq'")
    try:
        model_config(kind, {**_stand_ins(MODELS[kind][0], filled), **filled}, source_vocabulary=8, target_vocabulary=8)
    except UsageError as error:
        raise RecipeError(_blamed(str(error), filled), f"model: {error}") from error
    return filled


def model_config(kind: str, settings: Mapping[str, Any], *, source_vocabulary: int, target_vocabulary: int) -> Config:
    """The Config of the table's settings with these vocabularies; a model with one side takes the target's."""
    sizes = dict(zip(VOCABULARIES, (target_vocabulary, source_vocabulary, target_vocabulary), strict=True))
    schema = MODELS[kind][0]
    needed = {f.name: sizes[f.name] for f in dataclasses.fields(schema) if f.name in sizes}
    return schema.from_dict({**{key: value for key, value in settings.items() if key != "kind"}, **needed})


def whole_model(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The table with every setting of its Config, those that it left at their defaults too."""
    return _told(model_config(kind, settings, source_vocabulary=8, target_vocabulary=8))


def _told(config: Config) -> dict[str, Any]:
    """A Config as a [model] table; what is None is left out, as TOML has no word for it."""
    settings = {key: value for key, value in config.to_dict().items() if key in _names(type(config))}
    return {"kind": config.kind, **{key: value for key, value in settings.items() if value is not None}}


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of their preset below them: all of them, so that nothing is left to choose."""
    filled = dict(settings)
    if (name := filled.pop("preset", None)) is None:
        return filled
    if name not in PRESETS:
        raise RecipeError("model.preset", unknown_name("preset", name, tuple(PRESETS)))
    schema, sizes = PRESETS[name]
    config = schema.from_dict({**sizes, **{f.name: 8 for f in dataclasses.fields(schema) if f.name in VOCABULARIES}})
    if filled.get("kind", config.kind) != config.kind:
        raise RecipeError("model.kind", f"preset {name!r} is a {config.kind}, and kind says {filled['kind']!r}")
    return {**_told(config), **filled}


def _stand_ins(schema: type[Config], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Values for sizes left open that fit the given ones, as those of choose.py will: no check may fail on them."""
    if issubclass(schema, StackConfig):
        many = settings.get("dim", 64) if "exact_heads" in settings else 1  # which may name many
        heads = settings.get("heads", settings.get("kv_heads", many))
        return {"heads": heads, "dim": heads} if isinstance(heads, int) else {}
    width = settings.get("hidden", settings.get("embedding", 2))
    return {"hidden": width, "embedding": width} if settings.get("tie_output") and isinstance(width, int) else {}


def _names(schema: type[Config]) -> list[str]:
    return [f.name for f in dataclasses.fields(schema) if f.name not in FROM_TOKENIZER]


def _blamed(message: str, settings: Mapping[str, Any]) -> str:
    """The setting that an error of a Config speaks of: the first of the table's own that it names."""
    places = {key: found.start() for key in settings if (found := re.search(rf"\b{key}\b", message))}
    return f"model.{min(places, key=lambda key: places[key])}" if places else "model"
