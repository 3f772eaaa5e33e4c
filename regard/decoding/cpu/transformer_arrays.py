"""A Transformer that translates, as arrays in the structure of its modules, so that C can read it without torch.

Each class has those attributes of a module that c_structs.py and c_network.py read; the tests compare them with the
modules' own.

    V vocabulary   p model width   h hidden width   o, i outputs and inputs of a matrix
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from regard.decoding.cpu.network_settings import NetworkSettings
from regard.errors import UsageError

Array = np.ndarray


class HeadSizes(NamedTuple):
    heads: int
    kv_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class Linear:
    weight: Array  # (o, i)
    bias: Array | None  # (o,)


@dataclass(frozen=True)
class StackedProjection(Linear):
    sizes: HeadSizes

    @property
    def rows(self) -> tuple[int, int, int]:
        """The rows of W_Q, W_K and W_V."""
        heads, kv_heads, d_k, d_v = self.sizes
        return heads * d_k, kv_heads * d_k, kv_heads * d_v


@dataclass(frozen=True)
class Norm:
    weight: Array  # (p,)
    bias: Array | None
    eps: float
    traits: frozenset[str]


@dataclass(frozen=True)
class NoPosition:
    traits: ClassVar = frozenset({"position Position"})


@dataclass(frozen=True)
class Sinusoidal:
    dim: int
    start: int = 0
    base: float = 10000.0
    layout: str = "interleaved"
    first: int = 0

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"position Sinusoidal", *(["sinusoidal-start"] if self.start else [])})


@dataclass(frozen=True)
class Learned:
    table: Array  # (positions, p)

    traits: ClassVar = frozenset({"position Learned"})

    @property
    def max_length(self) -> int:
        return len(self.table)


@dataclass(frozen=True)
class Rotary:
    rotated_dim: int
    base: float = 10000.0
    layout: str = "halves"
    scaling: None = None

    traits: ClassVar = frozenset({"position Rotary"})


@dataclass(frozen=True)
class Embedding:
    weight: Array  # (V, p)
    factor: float


@dataclass(frozen=True)
class TokenInput:
    embedding: Embedding
    position: NoPosition | Sinusoidal | Learned | None


@dataclass(frozen=True)
class Attention:
    dim: int
    heads: int
    d_k: int
    input: StackedProjection
    output: Linear
    position: Rotary | None


@dataclass(frozen=True)
class Recurrence:
    """An SSRU."""

    input: Linear
    forget: Linear

    traits: ClassVar = frozenset({"ssru"})


@dataclass(frozen=True)
class FeedForward:
    up: Linear
    down: Linear
    activation: str


@dataclass(frozen=True)
class BlockArrays:
    self_attention: Attention | Recurrence
    self_norm: Norm
    cross_attention: Attention | None
    cross_norm: Norm | None
    feed_forward: FeedForward
    feed_norm: Norm
    order: str


@dataclass(frozen=True)
class StackArrays:
    blocks: list[BlockArrays]
    norm: Norm | None


@dataclass(frozen=True)
class TransformerArrays:
    source: TokenInput
    encoder: StackArrays
    target: TokenInput
    decoder: StackArrays
    output: Array | None  # (V, p); None: the table of the target
    output_bias: Array | None  # (V,)

    @property
    def output_table(self) -> tuple[Array, Array | None]:
        return self.target.embedding.weight if self.output is None else self.output, self.output_bias


def make_arrays(settings: NetworkSettings, weights: Mapping[str, Array]) -> TransformerArrays:
    """Arrange the weights of a model folder; UsageError unless they are exactly those that the settings ask for."""
    maker = _ArraysMaker(settings, weights)
    source = maker.token_input("source", settings.source_vocabulary, None)
    model = TransformerArrays(
        source,
        maker.stack("encoder", settings.layers, cross=False),
        maker.token_input(
            "target", settings.target_vocabulary, source.embedding if settings.share_embeddings else None
        ),
        maker.stack("decoder", settings.decoder_layers or settings.layers, cross=True),
        None if settings.tie_output else maker.take("output.weight", settings.target_vocabulary, settings.dim),
        maker.take("output_bias", settings.target_vocabulary) if settings.output_bias else None,
    )
    if maker.unused:
        raise UsageError(f"the weight {min(maker.unused)!r} belongs to no part of the model")
    return model


class _ArraysMaker:
    def __init__(self, settings: NetworkSettings, weights: Mapping[str, Array]) -> None:
        self.settings, self.unused = settings, dict(weights)

    def take(self, name: str, *shape: int) -> Array:
        weight = self.unused.pop(name, None)
        if weight is None or weight.shape != shape:
            raise UsageError(f"the weight {name!r} is missing, or its shape is not {shape}")
        return weight

    def token_input(self, side: str, vocabulary: int, shared: Embedding | None) -> TokenInput:
        settings = self.settings
        factor = math.sqrt(settings.dim) if settings.scale_embedding else 1.0
        embedding = shared or Embedding(self.take(f"{side}.embedding.weight", vocabulary, settings.dim), factor)
        if settings.position == "learned":
            table = self.take(f"{side}.position.table", settings.max_length, settings.dim)
            return TokenInput(embedding, Learned(table))
        if settings.position == "sinusoidal":
            return TokenInput(embedding, Sinusoidal(settings.dim, **settings.position_options))
        return TokenInput(embedding, NoPosition() if settings.position == "none" else None)

    def stack(self, name: str, layers: int, *, cross: bool) -> StackArrays:
        blocks = [self.block(f"{name}.blocks.{number}", cross=cross) for number in range(layers)]
        return StackArrays(blocks, self.norm(f"{name}.norm") if self.settings.order == "pre" else None)

    def block(self, name: str, *, cross: bool) -> BlockArrays:
        settings = self.settings
        rotary = Rotary(settings.head_dim) if settings.position == "rotary" else None
        stacked = 2 if settings.activation == "swiglu" else 1
        return BlockArrays(
            self.recurrence(f"{name}.self_attention")
            if cross and settings.decoder_self == "ssru"
            else self.attention(f"{name}.self_attention", rotary),
            self.norm(f"{name}.self_norm"),
            self.attention(f"{name}.cross_attention", None) if cross else None,
            self.norm(f"{name}.cross_norm") if cross else None,
            FeedForward(
                self.linear(f"{name}.feed_forward.up", stacked * settings.hidden, settings.dim),
                self.linear(f"{name}.feed_forward.down", settings.dim, settings.hidden),
                settings.activation,
            ),
            self.norm(f"{name}.feed_norm"),
            settings.order,
        )

    def attention(self, name: str, position: Rotary | None) -> Attention:
        heads, d, dim = self.settings.heads, self.settings.head_dim, self.settings.dim
        sizes = HeadSizes(heads, self.settings.kv_heads or heads, d, d)
        stacked = self.linear(f"{name}.input", dim + 2 * sizes.kv_heads * d, dim)
        output = self.linear(f"{name}.output", dim, dim)
        return Attention(dim, heads, d, StackedProjection(stacked.weight, stacked.bias, sizes), output, position)

    def recurrence(self, name: str) -> Recurrence:
        dim = self.settings.dim
        gate = Linear(self.take(f"{name}.forget.weight", dim, dim), self.take(f"{name}.forget.bias", dim))
        return Recurrence(Linear(self.take(f"{name}.input.weight", dim, dim), None), gate)

    def linear(self, name: str, out: int, columns: int) -> Linear:
        bias = self.take(f"{name}.bias", out) if self.settings.bias else None
        return Linear(self.take(f"{name}.weight", out, columns), bias)

    def norm(self, name: str) -> Norm:
        weight = self.take(f"{name}.weight", self.settings.dim)
        if self.settings.norm == "rms":
            return Norm(weight, None, self.settings.norm_eps or 1e-6, frozenset({"RMSNorm"}))
        bias = self.take(f"{name}.bias", self.settings.dim) if self.settings.bias else None
        return Norm(weight, bias, self.settings.norm_eps or 1e-5, frozenset({"LayerNorm"}))
