"""The settings of a stack of Transformer blocks, which all Transformers share."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

from regard.attention.projections import FORMS
from regard.attention.scores import SCORES
from regard.layers.block import ORDERS
from regard.layers.feedforward import Activation
from regard.models.config.base import COUNT, SIZE
from regard.models.config.exact_heads import check_random_features, pick_heads
from regard.models.config.random_features import DEFAULTS, FLAT_NAMES, TABLE, RandomFeaturesConfig, nest_settings
from regard.models.config.rotary import ABOVE_ZERO, ROTARY, RotaryConfig
from regard.models.config.token_ids import TOKEN_IDS, TokenConfig
from regard.models.layer_names import is_cross_attention
from regard.positions import SCHEMES
from regard.settings import SHARE, SettingError, ValueRule, choice, number

NORMS = ("layer", "rms")
MECHANISMS = ("softmax", "random-features")
FIRST = ValueRule(least=0, most=1)  # counting starts at 0 or at 1
START_POSITION = ValueRule(least=0, most=2)  # M2M100 counts from 2
LAYOUTS = ("interleaved", "halves")  # of sines and cosines
EPS = ValueRule(above=0, below=1)
# Settings that came after the first version of the model folder.
LATER = frozenset(
    {
        *("window", "score", "d_k", "d_v", "attention_output", "source_start"),
        *("position_start", "frequency_start", "position_width"),
        *("shortcut", "shortcut_dropout"),
    }
)
# Settings of format 2 of the model folder, which older versions cannot read.
FORMAT_2 = frozenset(
    {
        "norm_eps",
        "qkv_bias",
        "input_norm",
        "output_bias",
        "position_base",
        "position_layout",
        "decoder_self",
        *ROTARY,
        *TOKEN_IDS,
    }
)
NEW_ACTIVATIONS = ("silu", "geglu-tanh")  # also of format 2


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
class StackConfig(RotaryConfig, TokenConfig, metaclass=FlatNames):
    """The settings of the blocks, shared by all Transformers. Defaults: the base model of Vaswani et al. 2017."""

    layers: int = number(6, rule=COUNT)
    dim: int = number(512, rule=SIZE)
    heads: int = number(8, rule=COUNT)
    kv_heads: int | None = number(None, rule=COUNT)
    d_k: int | None = number(None, rule=SIZE)  # width of a head's queries and keys; None: dim / heads
    d_v: int | None = number(None, rule=SIZE)  # width of a head's values; None: dim / heads
    hidden: int = number(2048, rule=SIZE)  # of the feed-forward net
    activation: str = choice("relu", get_args(Activation))
    norm: str = choice("layer", NORMS)
    norm_eps: float | None = number(None, rule=EPS)  # None: 1e-5 of layer, 1e-6 of rms
    order: str = choice("post", ORDERS)
    position: str = choice("sinusoidal", SCHEMES)
    position_start: int = number(0, rule=START_POSITION)  # of sinusoidal positions; L1 counts words from 1
    frequency_start: int = number(0, rule=FIRST)  # the first i of their frequencies; L0 starts at 1
    position_base: float = number(10000.0, rule=ABOVE_ZERO)  # of sinusoidal positions: base^(-2i/dim)
    position_layout: str = choice("interleaved", LAYOUTS)  # of their sines and cosines
    position_width: int | None = number(None, rule=SIZE)  # of learned positions, appended (L1); None: added
    max_length: int = number(1024, rule=SIZE)  # of learned positions; other schemes have no limit
    score: str = choice("scaled", SCORES)  # of exact attention
    form: str = choice("projected", FORMS)
    attention_output: bool = True  # W^O after the heads; L4 leaves it out
    qk_norm: bool = False
    bias: bool = True
    qkv_bias: bool | None = None  # of the queries, keys and values; None: as `bias`
    input_norm: bool = False  # a normalization after the positions, before the first block
    attention_dropout: float = number(0.0, rule=SHARE)  # of the weights
    hidden_dropout: float = number(0.0, rule=SHARE)  # inside the feed-forward net
    scale_embedding: bool = True  # token vectors times sqrt(dim), section 3.4
    window: int | None = number(None, rule=SIZE)  # tokens that exact self-attention covers; None: all
    attention: str = choice("softmax", MECHANISMS)
    random_features: RandomFeaturesConfig = DEFAULTS  # of attention = "random-features"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_widths()
        self._check_positions()
        if self.kv_heads is not None and self.heads % self.kv_heads:
            message = f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}"
            raise SettingError("heads", message, "kv_heads")
        if self.score != "scaled" and SCHEMES[self.position].adds_to_scores():
            message = f"position {self.position!r} adds to the scaled dot product, which score {self.score!r} replaces"
            raise SettingError("score", message, "position")
        self._check_random_features()
        self._check_rotary(self.position, self.key_width)
        if self.vocabularies:
            self._check_tokens(min(self.vocabularies))

    def _check_widths(self) -> None:
        chosen = self.d_k is not None and self.d_v is not None and self.form == "projected"
        if self.dim % self.heads and not chosen:
            message = f"dim={self.dim} does not split into heads={self.heads} equal parts"
            raise SettingError("dim", message, "heads")
        if not self.attention_output and self.heads * self.value_width != self.dim:
            message = (
                f"without attention_output the heads are added to the residual as they are, so heads · d_v must be "
                f"dim: got {self.heads} · {self.value_width} and dim={self.dim}"
            )
            raise SettingError("attention_output", message, "d_v")

    def _check_positions(self) -> None:
        defaults = {"position_start": 0, "frequency_start": 0, "position_base": 10000.0, "position_layout": LAYOUTS[0]}
        for name, default in defaults.items():
            if getattr(self, name) != default and self.position != "sinusoidal":
                message = f"{name} is a setting of position = 'sinusoidal', and position is {self.position!r}"
                raise SettingError(name, message, "position")
        if self.position_width is None:
            return
        if self.position != "learned":
            message = f"position_width is a setting of position = 'learned', and position is {self.position!r}"
            raise SettingError("position_width", message, "position")
        if self.position_width >= self.dim:
            message = (
                f"position_width={self.position_width} leaves no columns of dim={self.dim} for the token: the two "
                f"parts together have width dim"
            )
            raise SettingError("position_width", message, "dim")
        if getattr(self, "tie_output", False):
            message = (
                "position_width makes token vectors narrower than dim, so the output layer cannot use their table: "
                "set tie_output = false"
            )
            raise SettingError("tie_output", message, "position_width")

    def _check_random_features(self) -> None:
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
    def key_width(self) -> int:
        """The width d_k of a head's queries and keys."""
        return self.d_k or self.dim // self.heads

    @property
    def value_width(self) -> int:
        """The width d_v of a head's values."""
        return self.d_v or self.dim // self.heads

    @property
    def layer_count(self) -> int:
        return self.layers

    @property
    def max_positions(self) -> int | None:
        return self.max_length if SCHEMES[self.position].limited else None

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
        """Return all settings as in config.json; those that came after the first version only if used.

        Format 1 of the model folder has the settings of random features flat among the others.
        """
        omitted = {"attention", TABLE} if self.attention == "softmax" else set()
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        later = (LATER | FORMAT_2) & defaults.keys()
        omitted |= {name for name in later if getattr(self, name) == defaults[name]}
        settings: dict[str, Any] = {}
        for name, value in super().to_dict().items():
            if name not in omitted:
                settings |= self.random_features.to_flat() if name == TABLE else {name: value}
        return settings

    @property
    def folder_format(self) -> int:
        used = FORMAT_2 & self.to_dict().keys()
        return 2 if used or self.activation in NEW_ACTIVATIONS else 1

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> Self:
        """Return the config with these settings; those of random features may be flat or in their table."""
        return super().from_dict(nest_settings(settings, warn=False))
