"""A short notation for the heads that stay exact in a model with random features.

    exact_heads = ["encoder", "decoder.0", "decoder.*.self:0,1", "decoder.3.cross:4-7"]

A name consists of the stack, the number of the block, and self or cross, as in recordings. Parts omitted at the end
match everything, and so does *. Numbers after a colon select heads; without them the pattern selects all heads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NoReturn

from regard.attention.linear.feature_maps import make_map
from regard.models.layer_names import is_causal, is_self_attention
from regard.positions import SCHEMES
from regard.settings import SettingError

if TYPE_CHECKING:
    from regard.models.config.stack import StackConfig

HEADS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


def pick_heads(patterns: Sequence[str], layer: str, heads: int) -> tuple[int, ...]:
    """Return the heads of a layer such as "decoder.2.cross" that the patterns select, in order."""
    selected: set[int] = set()
    for pattern in patterns:
        name, colon, numbers = pattern.partition(":")
        if _matches(name, layer):
            selected.update(_numbers(numbers) if colon else range(heads))
    return tuple(sorted(selected))


def check_patterns(
    patterns: Sequence[str], layers: Sequence[str], heads: int, kv_heads: int, *, setting: str = "exact_heads"
) -> None:
    """Raise SettingError unless each pattern selects existing layers and heads, and only whole groups of heads."""
    key = f"random_features.{setting}"
    for pattern in patterns:
        name, colon, numbers = pattern.partition(":")
        if colon and not HEADS.fullmatch(numbers):
            message = f"{setting}: behind the colon stand heads, as in decoder.0.self:0,2-3; got {pattern!r}"
            raise SettingError(key, message)
        if not any(_matches(name, layer) for layer in layers):
            known = ", ".join(layers[:4]) + (", …" if len(layers) > 4 else "")
            raise SettingError(key, f"{setting}: {pattern!r} names no layer of this model (there are {known})")
        if colon and (wrong := [head for head in _numbers(numbers) if head >= heads]):
            message = f"{setting}: {pattern!r} names head {wrong[0]}, and a layer has heads 0 to {heads - 1}"
            raise SettingError(key, message)
    group = heads // kv_heads
    for layer in layers:
        exact = set(pick_heads(patterns, layer, heads))
        if any(0 < len(exact & set(range(first, first + group))) < group for first in range(0, heads, group)):
            raise SettingError(
                key,
                f"{setting}: the heads of {layer} share keys in groups of {group} (kv_heads={kv_heads}), and a group "
                f"is exact as a whole or not at all; got {sorted(exact)}",
            )


def check_random_features(config: StackConfig) -> None:
    """Raise SettingError for settings that cannot be combined with random features."""
    settings, layers = config.random_features, config.attention_layers
    check_patterns(settings.exact_heads, layers, config.heads, config.kv_heads or config.heads)
    random = [layer for layer in layers if len(config.exact_heads_of(layer)) < config.heads]
    if not random:
        _refuse("exact_heads", "exact_heads leaves no head to random features: take attention = 'softmax'")
    self_attention = [layer for layer in random if is_self_attention(layer)]
    if self_attention and SCHEMES[config.position].adds_to_scores():
        raise SettingError(
            "position",
            f"position {config.position!r} adds to scores, and random features have none: take 'rotary' or one that "
            f"acts on embeddings, or name every self-attention in random_features.exact_heads",
        )
    if not config.attention_output and any(config.exact_heads_of(layer) for layer in random):
        message = "exact and random heads of one layer are joined by the output matrix: attention_output must be true"
        raise SettingError("attention_output", message, "random_features")
    if config.score != "scaled":
        message = f"score {config.score!r} compares queries and keys, and random features estimate 'scaled' only"
        raise SettingError("score", message, "attention")
    if settings.gate and not any(map(is_causal, random)):
        _refuse("gate", "random_features.gate is for self-attention of a decoder, and none of it is random here")
    if config.form != "projected" or config.qk_norm:
        name = "qk_norm" if config.qk_norm else "form"
        shown = "qk_norm" if config.qk_norm else "form = 'slice'"
        message = f"{shown} is for exact attention: random features project all, and random_features.norm normalises"
        raise SettingError(name, message)
    if settings.cross_map is not None and not set(random) - set(self_attention):
        _refuse("cross_map", "random_features.cross_map is for cross-attention, and none of it is random here")
    maps = {"map": settings.map, "cross_map": settings.cross_map}
    for setting, map_name in maps.items():
        if map_name is None:
            continue
        feature_map = make_map(map_name)
        if feature_map.raw and (settings.norm or settings.scale):
            _refuse(setting, f"map {map_name!r} takes queries and keys as they are: norm and scale must be false")
        if feature_map.raw and settings.sigma != 1:
            _refuse("sigma", f"map {map_name!r} has no random rows, so sigma has no effect")
        try:
            feature_map.sizes(settings.features, config.key_width)
        except ValueError as error:
            raise SettingError("random_features.features", str(error), f"random_features.{setting}") from error


def _refuse(setting: str, message: str) -> NoReturn:
    raise SettingError(f"random_features.{setting}", message, "random_features")


def _matches(name: str, layer: str) -> bool:
    """Whether a name, possibly with omitted parts, matches the layer."""
    patterns, parts = name.split("."), layer.split(".")
    return len(patterns) <= len(parts) and all(map(fnmatchcase, parts, patterns))


def _numbers(text: str) -> list[int]:
    """Parse a list of numbers such as 0,2-4."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
