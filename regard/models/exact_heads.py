"""Which heads stay exact in a model with random features: a short notation, layers by the names that recordings have.

    exact_heads = ["encoder", "decoder.0", "decoder.*.self:0,1", "decoder.3.cross:4-7"]

A name is the stack, the block's number, self or cross. What is left out at its end means all, and so does *. Numbers
behind a colon are heads; without them all heads are meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from regard.attention.linear.feature_maps import make_map
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.models.config import StackConfig

ON_SCORES = ("relative", "t5", "alibi")  # positions that add to scores
HEADS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


def pick_heads(patterns: Sequence[str], layer: str, heads: int) -> tuple[int, ...]:
    """The heads of a layer such as "decoder.2.cross" that the patterns name, in order."""
    found: set[int] = set()
    for pattern in patterns:
        name, colon, numbers = pattern.partition(":")
        if _names(name, layer):
            found.update(_numbers(numbers) if colon else range(heads))
    return tuple(sorted(found))


def check_patterns(
    patterns: Sequence[str], layers: Sequence[str], heads: int, kv_heads: int, *, setting: str = "exact_heads"
) -> None:
    """Raise UsageError unless each pattern names layers and heads that there are, and groups of heads as a whole."""
    for pattern in patterns:
        name, colon, numbers = pattern.partition(":")
        if colon and not HEADS.fullmatch(numbers):
            raise UsageError(f"{setting}: behind the colon stand heads, as in decoder.0.self:0,2-3; got {pattern!r}")
        if not any(_names(name, layer) for layer in layers):
            known = ", ".join(layers[:4]) + (", …" if len(layers) > 4 else "")
            raise UsageError(f"{setting}: {pattern!r} names no layer of this model (there are {known})")
        if colon and (wrong := [head for head in _numbers(numbers) if head >= heads]):
            raise UsageError(f"{setting}: {pattern!r} names head {wrong[0]}, and a layer has heads 0 to {heads - 1}")
    group = heads // kv_heads
    for layer in layers:
        exact = set(pick_heads(patterns, layer, heads))
        if any(0 < len(exact & set(range(first, first + group))) < group for first in range(0, heads, group)):
            raise UsageError(
                f"{setting}: the heads of {layer} share keys in groups of {group} (kv_heads={kv_heads}), and a group "
                f"is exact as a whole or not at all; got {sorted(exact)}"
            )


def check_features(config: StackConfig) -> None:
    """Raise UsageError for settings that do not go with random features."""
    layers = config.attention_layers
    check_patterns(config.exact_heads, layers, config.heads, config.kv_heads or config.heads)
    random = [layer for layer in layers if len(config.exact_heads_of(layer)) < config.heads]
    if not random:
        raise UsageError("exact_heads leaves no head to random features: take attention = 'softmax'")
    own = [layer for layer in random if layer.endswith(".self")]
    if own and config.position in ON_SCORES:
        raise UsageError(
            f"position {config.position!r} adds to scores, and random features have none: take 'rotary' or one that "
            f"acts on embeddings, or name every self-attention in exact_heads"
        )
    if config.feature_gate and not any(map(is_causal, random)):
        raise UsageError("feature_gate is for self-attention of a decoder, and none of it has random features here")
    if config.form != "projected" or config.qk_norm:
        name = "qk_norm" if config.qk_norm else "form = 'slice'"
        raise UsageError(f"{name} is for exact attention: random features project all, and feature_norm normalises")
    if config.feature_cross_map is not None and not set(random) - set(own):
        raise UsageError("feature_cross_map is for cross-attention, and none of it has random features here")
    for name in filter(None, (config.feature_map, config.feature_cross_map)):
        made = make_map(name)
        if made.raw and (config.feature_norm or config.feature_scale):
            raise UsageError(
                f"map {name!r} takes queries and keys as they are: feature_norm and feature_scale must be false"
            )
        try:
            made.sizes(config.features, config.dim // config.heads)
        except ValueError as error:
            raise UsageError(str(error)) from error


def is_causal(layer: str) -> bool:
    """Whether that layer ("decoder.2.self") looks at what came before alone."""
    return layer.startswith("decoder") and layer.endswith(".self")


def _names(name: str, layer: str) -> bool:
    """Whether a name with parts left out is that of the layer."""
    parts, wanted = name.split("."), layer.split(".")
    return len(parts) <= len(wanted) and all(map(fnmatchcase, wanted, parts))


def _numbers(text: str) -> list[int]:
    """The numbers of a list such as 0,2-4."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
