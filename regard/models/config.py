"""The settings of whole models: frozen dataclasses, checked when they are created.

config.json of a model folder contains them; a recipe sets them.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from regard.attention.projections import FORMS
from regard.attention.scores import SCORES
from regard.errors import unknown_name
from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.exact_heads import check_random_features, pick_heads
from regard.models.layer_names import is_cross_attention
from regard.models.random_features import DEFAULTS, FLAT_NAMES, TABLE, RandomFeaturesConfig, nest_settings
from regard.positions import POSITIONS
from regard.settings import SHARE, SettingError, ValueRule, check_fields, choice, number

# Sizes beyond these come from a damaged or hostile file, not from a model.
SIZE = ValueRule(least=1, most=2**24)
COUNT = ValueRule(least=1, most=1024)
TOKEN = ValueRule(least=0, most=2**24)
NORMS = ("layer", "rms")
CELLS = ("rnn", "gru", "lstm")
ATTENTIONS = ("none", *SCORES)
STYLES = ("bahdanau", "luong")
POOLINGS = ("mean", "max", "first", "learned")
MECHANISMS = ("softmax", "random-features")

Side = Literal["source", "target"]


def vocabulary_of(side: Side) -> Any:
    """Declare a field for the vocabulary size of the source's or the target's tokenizer."""
    return field(metadata={"rule": SIZE, "tokenizer": side})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base class of all configs; its fields declare their ranges and choices."""

    dropout: float = number(0.1, rule=SHARE)
    pad_id: int = number(0, rule=TOKEN)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def kind(self) -> str:
        """The model's name in recipes and model folders."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """The width of the vectors between layers; the noam schedule depends on it."""
        raise NotImplementedError

    @property
    def layer_count(self) -> int:
        """The number of layers; a model folder must contain their weights."""
        return 0

    @property
    def stacks(self) -> dict[str, int]:
        """The number of layers of each stack, "encoder" and "decoder"."""
        return {}

    @property
    def cross_layers(self) -> list[str]:
        """The names of the layers that attend to the source, as in recordings; an alignment needs one."""
        return []

    @property
    def reads_any_length(self) -> bool:
        """Whether a text of any length fits into a state of fixed size, as in a recurrent model."""
        return False

    @property
    def vocabularies(self) -> list[int]:
        """The sizes of the vocabularies, source first."""
        return [getattr(self, name) for name in self.vocabulary_fields()]

    @classmethod
    def vocabulary_fields(cls) -> dict[str, Side]:
        """Return the settings that depend on a tokenizer, each with the side of that tokenizer."""
        return {f.name: f.metadata["tokenizer"] for f in dataclasses.fields(cls) if "tokenizer" in f.metadata}

    @classmethod
    def complete_kind(cls, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with those that the kind of model implies; SettingError if they contradict it."""
        return dict(settings)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Return the config with these settings; an unknown or missing one is an error."""
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                raise SettingError(name, unknown_name(f"setting of {cls.__name__}", name, tuple(known)))
        for name, declared in known.items():
            if name not in settings and declared.default is dataclasses.MISSING:
                raise SettingError(name, f"{cls.__name__} needs the setting {name!r}")
        return cls(**settings)


class FlatNames(type):
    """Accept a dict for random features, or the deprecated flat names of their settings."""

    def __call__(cls, **settings: Any) -> Any:
        settings = nest_settings(settings, warn=True)
        if isinstance(settings.get(TABLE), Mapping):
            settings[TABLE] = RandomFeaturesConfig.from_dict(settings[TABLE])
        return super().__call__(**settings)

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature that `help` and `inspect` show."""
        signature = inspect.signature(cls.__init__)  # type: ignore[misc]  # of the class, not of its metaclass
        return signature.replace(parameters=list(signature.parameters.values())[1:])


@dataclass(frozen=True, kw_only=True)
class StackConfig(Config, metaclass=FlatNames):
    """The settings of the blocks, shared by all Transformers. Defaults: the base model of Vaswani et al. 2017."""

    layers: int = number(6, rule=COUNT)
    dim: int = number(512, rule=SIZE)
    heads: int = number(8, rule=COUNT)
    kv_heads: int | None = number(None, rule=COUNT)
    hidden: int = number(2048, rule=SIZE)  # of the feed-forward net
    activation: str = choice("relu", get_args(Activation))
    norm: str = choice("layer", NORMS)
    order: str = choice("post", ORDERS)
    position: str = choice("sinusoidal", POSITIONS)
    max_length: int = number(1024, rule=SIZE)  # of learned positions; other schemes have no limit
    form: str = choice("projected", FORMS)
    qk_norm: bool = False
    bias: bool = True
    attention_dropout: float = number(0.0, rule=SHARE)  # of the weights
    hidden_dropout: float = number(0.0, rule=SHARE)  # inside the feed-forward net
    scale_embedding: bool = True  # token vectors times sqrt(dim), section 3.4
    window: int | None = number(None, rule=SIZE)  # tokens that exact self-attention covers; None: all
    attention: str = choice("softmax", MECHANISMS)
    random_features: RandomFeaturesConfig = DEFAULTS  # of attention = "random-features"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            message = f"dim={self.dim} does not split into heads={self.heads} equal parts"
            raise SettingError("dim", message, "heads")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            message = f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}"
            raise SettingError("heads", message, "kv_heads")
        if self.attention == "random-features":
            check_random_features(self)
        elif self.random_features != DEFAULTS:
            changed = next(
                field.name
                for field in dataclasses.fields(RandomFeaturesConfig)
                if getattr(self.random_features, field.name) != field.default
            )
            raise SettingError(
                f"{TABLE}.{changed}",
                f"{TABLE}.{changed} is a setting of attention = 'random-features', and attention is {self.attention!r}",
                TABLE,
            )

    def __getattr__(self, name: str) -> Any:
        if name not in FLAT_NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is {TABLE}.{FLAT_NAMES[name]} now", DeprecationWarning, stacklevel=2)
        return getattr(self.random_features, FLAT_NAMES[name])

    @property
    def width(self) -> int:
        return self.dim

    @property
    def layer_count(self) -> int:
        return self.layers

    @property
    def attention_layers(self) -> list[str]:
        """The names of all attention layers, as in recordings: "decoder.2.cross"."""
        kinds = {"encoder": ("self",), "decoder": ("self", "cross") if "encoder" in self.stacks else ("self",)}
        return [
            f"{stack}.{n}.{kind}" for stack, size in self.stacks.items() for n in range(size) for kind in kinds[stack]
        ]

    @property
    def cross_layers(self) -> list[str]:
        return [layer for layer in self.attention_layers if is_cross_attention(layer)]

    def exact_heads_of(self, layer: str) -> tuple[int, ...]:
        """Return the heads of that layer that are exact."""
        if self.attention == "softmax":
            return tuple(range(self.heads))
        return pick_heads(self.random_features.exact_heads, layer, self.heads)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as in config.json; those of random features and windows only if they are used.

        Format 1 of the model folder has the settings of random features flat among the others.
        """
        omitted = {"attention", TABLE} if self.attention == "softmax" else set()
        omitted |= {"window"} if self.window is None else set()
        settings: dict[str, Any] = {}
        for name, value in super().to_dict().items():
            if name not in omitted:
                settings |= self.random_features.to_flat() if name == TABLE else {name: value}
        return settings

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Return the config with these settings; those of random features may be flat or in their table."""
        return super().from_dict(nest_settings(settings, warn=False))


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """The encoder-decoder Transformer."""

    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")
    decoder_layers: int | None = number(None, rule=COUNT)  # default: as many as the encoder
    share_embeddings: bool = False  # one table for source and target
    tie_output: bool = True  # the output layer is the target's table (Press & Wolf 2017)

    @property
    def kind(self) -> str:
        return "transformer"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.decoder_layers or self.layers}

    @property
    def layer_count(self) -> int:
        return self.layers + (self.decoder_layers or 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise SettingError(
                "share_embeddings",
                f"share_embeddings needs one vocabulary for both sides, got source_vocabulary={self.source_vocabulary} "
                f"and target_vocabulary={self.target_vocabulary}",
            )


@dataclass(frozen=True, kw_only=True)
class TransformerLMConfig(StackConfig):
    """The Transformer language model."""

    vocabulary: int = vocabulary_of("target")
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

    vocabulary: int = vocabulary_of("target")
    pooling: str = choice("mean", POOLINGS)
    normalize: bool = True  # vectors of unit length, so that their dot product is the cosine

    @property
    def kind(self) -> str:
        return "encoder"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(Config):
    """The cells and their sizes, shared by all recurrent models."""

    cell: str = choice("gru", CELLS)
    layers: int = number(1, rule=COUNT)
    embedding: int = number(256, rule=SIZE)
    hidden: int = number(512, rule=SIZE)
    tie_output: bool = False  # the output layer is the embedding table (Press & Wolf 2017)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tie_output and self.embedding != self.hidden:
            raise SettingError(
                "tie_output",
                f"tie_output makes the embedding table the output layer, so embedding must equal hidden; "
                f"got embedding={self.embedding}, hidden={self.hidden}",
                "embedding",
                "hidden",
            )

    @property
    def width(self) -> int:
        return self.hidden

    @property
    def layer_count(self) -> int:
        return self.layers

    @property
    def reads_any_length(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class RecurrentLMConfig(RecurrentConfig):
    """The recurrent language model."""

    vocabulary: int = vocabulary_of("target")

    @property
    def kind(self) -> str:
        return "rnn-lm"

    @property
    def stacks(self) -> dict[str, int]:
        return {"decoder": self.layers}


@dataclass(frozen=True, kw_only=True)
class RecurrentTranslatorConfig(RecurrentConfig):
    """The recurrent encoder-decoder, with attention (Bahdanau's, Luong's) or without (Sutskever's)."""

    source_vocabulary: int = vocabulary_of("source")
    target_vocabulary: int = vocabulary_of("target")
    attention: str = choice("additive", ATTENTIONS)  # the score, or "none": the decoder gets only the last state
    style: str = choice("bahdanau", STYLES)  # attention before the recurrent step (Bahdanau) or after it (Luong)
    input_feeding: bool = False  # Luong's: the last attentional state is an input of the next step
    bidirectional: bool = True
    encoder_hidden: int | None = number(None, rule=SIZE)  # width of each direction; default hidden / directions
    attention_hidden: int | None = number(None, rule=SIZE)  # of the additive and concat scores; default hidden

    @property
    def kind(self) -> str:
        return "rnn-seq2seq" if self.attention == "none" else "rnn-attention"

    @property
    def stacks(self) -> dict[str, int]:
        return {"encoder": self.layers, "decoder": self.layers}

    @property
    def cross_layers(self) -> list[str]:
        return [] if self.attention == "none" else ["decoder.cross"]

    @classmethod
    def complete_kind(cls, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "rnn-seq2seq":
            if settings.get("attention", "none") != "none":
                raise SettingError("attention", f"kind = {kind!r} has no attention: take 'rnn-attention'")
            return {**settings, "attention": "none"}
        if settings.get("attention") == "none":
            raise SettingError("attention", "attention = 'none' is kind = 'rnn-seq2seq'")
        return dict(settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "none" and self.input_feeding:
            message = "input_feeding feeds the attentional state back, and attention = 'none' has none"
            raise SettingError("input_feeding", message, "attention")
        if self.input_feeding and self.style != "luong":
            message = "input_feeding belongs to style 'luong'; Bahdanau's context is an input of the step anyway"
            raise SettingError("input_feeding", message, "style")
        if self.encoder_hidden is None and self.bidirectional and self.hidden % 2:
            message = f"hidden={self.hidden} is odd, so two directions cannot share it: give encoder_hidden"
            raise SettingError("hidden", message, "bidirectional")
