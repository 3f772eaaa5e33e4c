"""The attention layers of a model: exact, with random features, or heads of both kinds side by side.

Vaswani et al. 2017, section 3.2; Peng et al. 2021, section 3; F3.
"""

from __future__ import annotations

from regard.attention.linear.layer import RandomFeatureAttention
from regard.attention.linear.mixed import MixedAttention
from regard.attention.multihead import MultiHeadAttention
from regard.attention.types import Attention
from regard.models.config import StackConfig
from regard.models.layer_names import is_causal, is_self_attention
from regard.positions import Position

MAX_LAYERS = 4096  # of a model: each layer has its own seed, and models with other seeds have other ones


def make_attention(config: StackConfig, layer: str, position: Position | None) -> Attention:
    """Make the layer of that name ("decoder.2.cross") with these settings."""
    exact = config.exact_heads_of(layer)
    if len(exact) == config.heads:
        return _exact(config, layer, position, len(exact), output=config.attention_output)
    if not exact:
        return _random(config, layer, position, config.heads, output=config.attention_output)
    return MixedAttention(
        exact=_exact(config, layer, position, len(exact), output=False),
        random=_random(config, layer, position, config.heads - len(exact), output=False),
        exact_heads=exact,
        bias=config.bias,
    )


def _exact(
    config: StackConfig, layer: str, position: Position | None, heads: int, *, output: bool
) -> MultiHeadAttention:
    return MultiHeadAttention(
        dim=config.dim,
        heads=heads,
        kv_heads=_groups(config, heads),
        d_k=config.key_width,
        d_v=config.value_width,
        form=config.form,  # type: ignore[arg-type]  # checked by the config
        position=position,
        score=config.score,
        qk_norm=config.qk_norm,
        window=config.window if is_self_attention(layer) else None,
        bias=config.bias,
        input_bias=config.qkv_bias,
        norm_eps=config.norm_eps,
        output=output,
        dropout=config.attention_dropout,
    )


def _random(
    config: StackConfig, layer: str, position: Position | None, heads: int, *, output: bool
) -> RandomFeatureAttention:
    settings = config.random_features
    map = settings.map if is_self_attention(layer) else settings.cross_map or settings.map
    return RandomFeatureAttention(
        dim=config.dim,
        heads=heads,
        kv_heads=_groups(config, heads),
        d_k=config.key_width,
        d_v=config.value_width,
        position=position,
        features=settings.features,
        map=map,
        draw=settings.draw,
        normalize=None if map == "rows" else settings.norm,
        learned_scale=settings.scale,
        sigma=settings.sigma,
        gate=settings.gate and is_causal(layer),
        seed=settings.seed * MAX_LAYERS + config.attention_layers.index(layer),
        redraw_every=settings.redraw,
        bias=config.bias,
        output=output,
        dropout=config.attention_dropout,
    )


def _groups(config: StackConfig, heads: int) -> int | None:
    """Return the number of key-value heads for this number of heads."""
    return None if config.kv_heads is None else heads * config.kv_heads // config.heads
