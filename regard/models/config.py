"""The settings of whole models: frozen dataclasses, checked when they are made.

They are what `config.json` of a model folder holds and what a recipe fills in.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

from regard.attention.linear.feature_maps import MAPS, WHOLE
from regard.attention.linear.random_rows import KINDS
from regard.attention.multihead import FORMS
from regard.attention.scores import SCORES
from regard.errors import UsageError, unknown_name
from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.exact_heads import check_features, pick_heads
from regard.positions import POSITIONS

# Sizes beyond these come from a damaged or hostile file, not from a model.
RANGES = {
    "layers": (1, 1024),
    "decoder_layers": (1, 1024),
    "heads": (1, 1024),
    "kv_heads": (1, 1024),
    "pad_id": (0, 2**24),
    "features": (1, 2**16),
    "feature_redraw": (0, 2**24),
    "feature_seed": (0, 2**24),
}
NORMS = ("layer", "rms")
CELLS = ("rnn", "gru", "lstm")
ATTENTIONS = ("none", *SCORES)
STYLES = ("bahdanau", "luong")
POOLINGS = ("mean", "max", "first", "learned")
MECHANISMS = ("softmax", "random-features")


@dataclass(frozen=True, kw_only=True)
class Config:
    """What every model has in common: the settings know their names, their ranges and their choices."""

    choices: ClassVar[dict[str, tuple[str, ...]]] = {}

    dropout: float = 0.1
    pad_id: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            wanted = str(field.type)
            if value is None and "None" in wanted:
                continue
            if field.name in self.choices:
                if value not in self.choices[field.name]:
                    raise UsageError(unknown_name(field.name, value, self.choices[field.name]))
            elif wanted.startswith("tuple"):
                value = (value,) if isinstance(value, str) else value
                if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
                    raise UsageError(f"{field.name} must be a text or a list of texts, got {value!r}")
                object.__setattr__(self, field.name, tuple(value))
            elif wanted.startswith("bool"):
                if not isinstance(value, bool):
                    raise UsageError(f"{field.name} must be true or false, got {value!r}")
            elif wanted.startswith("float"):
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
                    raise UsageError(f"{field.name} must be a share from 0 up to, but not including, 1; got {value!r}")
            else:
                least, most = RANGES.get(field.name, (1, 2**24))
                if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                    raise UsageError(f"{field.name} must be a whole number from {least} to {most}, got {value!r}")

    @property
    def kind(self) -> str:
        """The model's name in recipes and model folders."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """The config with these settings; an unknown or missing one is an error."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                raise UsageError(unknown_name(f"setting of {cls.__name__}", name, tuple(known)))
        for name, field in known.items():
            if name not in settings and field.default is dataclasses.MISSING:
                raise UsageError(f"{cls.__name__} needs the setting {name!r}")
        return cls(**settings)


@dataclass(frozen=True, kw_only=True)
class StackConfig(Config):
    """What all Transformers share: the blocks. The defaults are those of the paper (base), Vaswani et al. 2017."""

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "activation": get_args(Activation),
        "norm": NORMS,
        "order": ORDERS,
        "position": POSITIONS,
        "form": FORMS,
        "pooling": POOLINGS,
        "attention": MECHANISMS,
        "feature_map": MAPS,
        "feature_draw": KINDS,
        "feature_cross_map": WHOLE,
    }

    layers: int = 6
    dim: int = 512
    heads: int = 8
    kv_heads: int | None = None
    hidden: int = 2048  # of the feed-forward net
    activation: str = "relu"
    norm: str = "layer"
    order: str = "post"
    position: str = "sinusoidal"
    max_length: int = 1024  # of learned positions; the others have none
    form: str = "projected"
    qk_norm: bool = False
    bias: bool = True
    attention_dropout: float = 0.0  # of the weights
    hidden_dropout: float = 0.0  # inside the feed-forward net
    scale_embedding: bool = True  # token vectors times sqrt(dim), section 3.4
    window: int | None = None  # tokens that exact self-attention looks at, itself and those next to it; else all
    attention: str = "softmax"  # the settings below are those of random features, Peng et al. 2021
    exact_heads: tuple[str, ...] = ()  # heads that stay exact, see exact_heads.py
    features: int | None = None  # numbers that the map makes of a query or a key; 128, or what the map prescribes
    feature_map: str = "hyperbolic"
    feature_cross_map: str | None = None  # of cross-attention, if another
    feature_draw: str = "orthogonal"
    feature_norm: bool = True  # queries and keys of length 1; else as they are
    feature_scale: bool = True  # a learned factor for each head and dimension
    feature_gate: bool = False  # the past fades, in the self-attention of a decoder
    feature_redraw: int = 0  # steps of training between two draws; 0: never
    feature_seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise UsageError(f"dim={self.dim} does not split into heads={self.heads} equal parts")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise UsageError(f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}")
        if self.attention == "random-features":
            check_features(self)
        elif given := sorted(self._of_features() - self._at_default()):
            raise UsageError(f"{given[0]} is a setting of attention = 'random-features', which attention does not say")

    @property
    def stacks(self) -> dict[str, int]:
        """How many blocks each stack has."""
        raise NotImplementedError

    @property
    def attention_layers(self) -> list[str]:
        """The names of all attention layers, as recordings have them: "decoder.2.cross"."""
        kinds = {"encoder": ("self",), "decoder": ("self", "cross") if "encoder" in self.stacks else ("self",)}
        return [
            f"{stack}.{n}.{kind}" for stack, size in self.stacks.items() for n in range(size) for kind in kinds[stack]
        ]

    def exact_heads_of(self, layer: str) -> tuple[int, ...]:
        """The heads of that layer that are exact."""
        return (
            tuple(range(self.heads)) if self.attention == "softmax" else pick_heads(self.exact_heads, layer, self.heads)
        )

    def to_dict(self) -> dict[str, Any]:
        """All settings; those of random features and windows only where there are any."""
        without = self._of_features() | {"attention"} if self.attention == "softmax" else set()
        without |= {"window"} if self.window is None else set()
        return {name: value for name, value in super().to_dict().items() if name not in without}

    @classmethod
    def _of_features(cls) -> set[str]:
        return {f.name for f in dataclasses.fields(cls) if f.name.startswith("feature") or f.name == "exact_heads"}

    def _at_default(self) -> set[str]:
        return {f.name for f in dataclasses.fields(self) if getattr(self, f.name) == f.default}


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """The encoder-decoder Transformer."""

    source_vocabulary: int
    target_vocabulary: int
    decoder_layers: int | None = None  # as many as the encoder's when not given
    share_embeddings: bool = False  # one table for source and target
    tie_output: bool = True  # the output layer is the target's table (Press & Wolf 2017)

    @property
    def kind(self) -> str:
        return "transformer"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.decoder_layers or self.layers}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise UsageError(
                f"share_embeddings needs one vocabulary for both sides, got source_vocabulary={self.source_vocabulary} "
                f"and target_vocabulary={self.target_vocabulary}"
            )


@dataclass(frozen=True, kw_only=True)
class TransformerLMConfig(StackConfig):
    """The Transformer language model."""

    vocabulary: int
    tie_output: bool = True

    @property
    def kind(self) -> str:
        return "transformer-lm"

    @property
    def stacks(self) -> dict[str, int]:
        return {"decoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(StackConfig):
    """The sentence encoder."""

    vocabulary: int
    pooling: str = "mean"
    normalize: bool = True  # vectors of unit length, so that their dot product is the cosine

    @property
    def kind(self) -> str:
        return "encoder"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(Config):
    """What all recurrent models share: the cells and their sizes."""

    choices: ClassVar[dict[str, tuple[str, ...]]] = {"cell": CELLS, "attention": ATTENTIONS, "style": STYLES}

    cell: str = "gru"
    layers: int = 1
    embedding: int = 256
    hidden: int = 512
    tie_output: bool = False  # the output layer is the embedding table (Press & Wolf 2017)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_output and self.embedding != self.hidden:
            raise UsageError(
                f"tie_output makes the embedding table the output layer, so embedding must equal hidden; "
                f"got embedding={self.embedding}, hidden={self.hidden}"
            )


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig(RecurrentConfig):
    """The recurrent language model."""

    vocabulary: int

    @property
    def kind(self) -> str:
        return "rnn-lm"


@dataclass(frozen=True, kw_only=True)
class RecurrentTranslatorConfig(RecurrentConfig):
    """The recurrent encoder-decoder, with attention (Bahdanau's, Luong's) or without (Sutskever's)."""

    source_vocabulary: int
    target_vocabulary: int
    attention: str = "additive"  # the score, or "none": the last state is all that the decoder gets
    style: str = "bahdanau"  # attention before the recurrent step (Bahdanau) or after it (Luong)
    input_feeding: bool = False  # Luong's: the last attentional state is an input of the next step
    bidirectional: bool = True
    encoder_hidden: int | None = None  # a direction's width; hidden / directions when not given
    attention_hidden: int | None = None  # of the additive and concat scores; hidden when not given

    @property
    def kind(self) -> str:
        return "rnn-seq2seq" if self.attention == "none" else "rnn-attention"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "none" and self.input_feeding:
            raise UsageError("input_feeding feeds the attentional state back, and attention = 'none' has none")
        if self.input_feeding and self.style != "luong":
            raise UsageError(
                "input_feeding belongs to style 'luong'; Bahdanau's context is an input of the step anyway"
            )
        if self.encoder_hidden is None and self.bidirectional and self.hidden % 2:
            raise UsageError(f"hidden={self.hidden} is odd, so two directions cannot share it: give encoder_hidden")
