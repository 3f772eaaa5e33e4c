"""Swap heads of a model for random features: its settings, its layers, and the weights that are copied.

H heads   G heads of keys   d_k, d_v widths of a head
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.projections import HeadSizes
from regard.attention.recording.recorder import layer_name
from regard.convert.head_analysis import MeasuredHead, exact_layers
from regard.errors import UsageError
from regard.models.config import StackConfig
from regard.models.config.exact_heads import check_patterns, pick_heads
from regard.models.config.random_features import RandomFeaturesConfig
from regard.models.layer_names import is_cross_attention
from regard.models.presets import make_model
from regard.positions import SCHEMES


def check_convertible(config: Any, map: str, features: int) -> list[str]:
    """Return the layers whose heads can be swapped; UsageError if there are none, or if the features are invalid."""
    if not isinstance(config, StackConfig):
        raise UsageError(f"a model of kind {config.kind!r} has no heads: transformer, transformer-lm and encoder have")
    if config.attention != "softmax":
        raise UsageError("this model already has random features: convert the exact model that it was made from")
    if config.score != "scaled":
        raise UsageError(f"this model has the score {config.score!r}: random features estimate 'scaled' only")
    layers = config.attention_layers
    if SCHEMES[config.position].adds_to_scores() or config.window is not None:  # these concern self-attention only
        layers = [layer for layer in layers if is_cross_attention(layer)]
        if not layers:
            what = f"position {config.position!r}" if config.window is None else "a window"
            raise UsageError(
                f"{what} depends on the distance between key and query, and random features sum keys up before they "
                f"meet a query: rotary positions, or those that act on embeddings, can be converted"
            )
    _converted(config, dict.fromkeys(layers, range(config.heads)), features=features, map=map, seed=0)
    return layers


def named_layers(wanted: Sequence[str], layers: Sequence[str], config: StackConfig) -> list[str]:
    """Return the layers with requested heads, all of them for "auto" and "all"; UsageError for unknown names."""
    if list(wanted) in (["all"], ["auto"]):
        return list(layers)
    check_patterns(wanted, layers, config.heads, config.kv_heads or config.heads, setting="heads")
    return [layer for layer in layers if pick_heads(wanted, layer, config.heads)]


def choose_heads(
    wanted: Sequence[str], heads: Sequence[MeasuredHead], config: StackConfig, target: float
) -> list[MeasuredHead]:
    """Return the heads, with `random` set for those to swap: "all", "auto" (within the target error), or by name.

    With "auto", heads that share keys are swapped together or not at all.
    """
    if list(wanted) == ["all"]:
        return [replace(head, random=True) for head in heads]
    if list(wanted) == ["auto"]:
        group = config.heads // (config.kv_heads or config.heads)
        sharp = {(head.layer, head.head // group) for head in heads if not head.start <= target}
        return [replace(head, random=(head.layer, head.head // group) not in sharp) for head in heads]
    return [replace(head, random=head.head in pick_heads(wanted, head.layer, config.heads)) for head in heads]


def swap_heads(model: Any, heads: Sequence[MeasuredHead], *, features: int, map: str, seed: int) -> nn.Module:
    """Return a copy of the model with random features in the chosen heads, with their factors and the same weights."""
    chosen: dict[str, list[int]] = {}
    for head in heads:
        if head.random:
            chosen.setdefault(head.layer, []).append(head.head)
    like = next(model.parameters())
    copy = make_model(_converted(model.config, chosen, features=features, map=map, seed=seed))
    copy.load_state_dict(model.state_dict(), strict=False)  # weights with the same name have the same shape
    old = exact_layers(model)
    factors = {(head.layer, head.head): head.factor for head in heads}
    with torch.no_grad():
        for name, layer in random_layers(copy).items():
            if isinstance(layer, MixedAttention):
                _take_over(old[name], layer)
            first = chosen[name][:: old[name].heads // old[name].kv_heads]  # of each group
            sigma = random_part(layer).features.sigma
            assert sigma is not None
            sigma.copy_(torch.tensor([[factors[name, head]] for head in first]).sqrt())  # it multiplies both q and k
    return copy.to(like.device).eval()


def random_layers(model: nn.Module) -> dict[str, RandomFeatureAttention | MixedAttention]:
    """Return the layers with random features by their names in recordings."""
    layers = {
        layer_name(path): layer
        for path, layer in model.named_modules()
        if isinstance(layer, RandomFeatureAttention | MixedAttention)
    }
    return {name: layer for name, layer in layers.items() if name.split(".")[-1] != "random"}  # a part of a mixed one


def random_part(layer: RandomFeatureAttention | MixedAttention) -> RandomFeatureAttention:
    """Return the part of a layer that computes its random heads."""
    return layer.random if isinstance(layer, MixedAttention) else layer


def random_heads(layer: RandomFeatureAttention | MixedAttention) -> list[int]:
    """Return the numbers of the random heads of a layer."""
    return list(layer.random_heads if isinstance(layer, MixedAttention) else range(layer.sizes.heads))


def _converted(
    config: StackConfig, chosen: Mapping[str, Sequence[int]], *, features: int, map: str, seed: int
) -> StackConfig:
    """Return the settings with random features in the chosen heads."""
    exact = []
    for layer in config.attention_layers:
        heads = [head for head in range(config.heads) if head not in chosen.get(layer, ())]
        if heads:
            exact.append(layer if len(heads) == config.heads else f"{layer}:{','.join(str(head) for head in heads)}")
    return replace(
        config,
        attention="random-features",
        random_features=RandomFeaturesConfig(
            exact_heads=tuple(exact), features=features, map=map, norm=False, scale=True, seed=seed
        ),
    )


def _take_over(old: MultiHeadAttention, new: MixedAttention) -> None:
    """Copy the rows of W_Q, W_K, W_V to the parts of a mixed layer, and the columns of W^O in their order."""
    sizes = HeadSizes(old.heads, old.kv_heads, old.d_k, old.d_v)
    for part, heads in ((new.exact, new.exact_heads), (new.random, new.random_heads)):
        rows = _rows(sizes, heads)
        for name, weight in part.input.named_parameters():
            weight.copy_(old.input.get_parameter(name)[rows])
    assert old.output is not None
    columns = [head * old.d_v + i for head in (*new.exact_heads, *new.random_heads) for i in range(old.d_v)]
    new.output.weight.copy_(old.output.weight[:, columns])
    if old.output.bias is not None:
        new.output.bias.copy_(old.output.bias)


def _rows(sizes: HeadSizes, heads: Sequence[int]) -> list[int]:
    """Return the rows of the stacked W_Q, W_K, W_V that belong to these heads."""
    H, G, d_k, d_v = sizes
    groups = sorted({head * G // H for head in heads})
    rows, start = [], 0
    for owners, count, width in ((heads, H, d_k), (groups, G, d_k), (groups, G, d_v)):
        rows += [start + owner * width + i for owner in owners for i in range(width)]
        start += count * width
    return rows
