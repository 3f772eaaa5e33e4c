"""The settings of a Transformer that C implements, read from a model folder without the classes of the model.

A setting that is not declared here, or that has a value which is not declared here, is a reason to leave the folder to
the modules. So is a wrong value: the modules' own checks explain it better. A new setting of `TransformerConfig` is
therefore never ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.errors import UsageError
from regard.settings import SHARE, ValueRule, check_fields, choice, number
from regard.text.tokenizers.special_tokens import DEFAULT, SpecialTokens

ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "swiglu", "silu")  # C knows them by their index
POSITIONS = ("none", "sinusoidal", "learned", "rotary")
KIND = "transformer"
SINUSOIDS = {"start": 0, "base": 10000.0, "layout": "interleaved"}  # by default
COUNT = ValueRule(least=1, most=1024)
SIZE = ValueRule(least=1, most=2**24)
TOKEN = ValueRule(least=0, most=2**24)
EPS = ValueRule(above=0, below=1)
START_POSITION = ValueRule(least=0, most=2)
ABOVE_ZERO = ValueRule(above=0, most=1e12)


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The entries of `model` in config.json; see `TransformerConfig` for their meaning."""

    layers: int = number(rule=COUNT)
    decoder_layers: int | None = number(rule=COUNT)
    dim: int = number(rule=SIZE)
    heads: int = number(rule=COUNT)
    kv_heads: int | None = number(rule=COUNT)
    hidden: int = number(rule=SIZE)
    activation: str = choice(None, ACTIVATIONS)
    norm: str = choice(None, ("layer", "rms"))
    order: str = choice(None, ("pre", "post"))
    position: str = choice(None, POSITIONS)
    max_length: int = number(rule=SIZE)
    form: str = choice(None, ("projected",))
    qk_norm: bool
    bias: bool
    scale_embedding: bool
    source_vocabulary: int = number(rule=SIZE)
    target_vocabulary: int = number(rule=SIZE)
    share_embeddings: bool
    tie_output: bool
    pad_id: int = number(rule=TOKEN)
    dropout: float = number(rule=SHARE)  # which acts only in training, like the next two
    attention_dropout: float = number(rule=SHARE)
    hidden_dropout: float = number(rule=SHARE)
    # In config.json only if they are used.
    norm_eps: float | None = number(None, rule=EPS)
    position_start: int = number(0, rule=START_POSITION)
    position_base: float = number(10000.0, rule=ABOVE_ZERO)
    position_layout: str = choice("interleaved", ("interleaved", "halves"))
    output_bias: bool = False
    decoder_self: str = choice("attention", ("attention", "ssru"))
    unknown_id: int | None = number(DEFAULT.unknown, rule=TOKEN)
    start_id: int = number(DEFAULT.start, rule=TOKEN)
    end_ids: tuple[int, ...] = number(DEFAULT.ends, rule=TOKEN)
    barred_ids: tuple[int, ...] = number(DEFAULT.barred, rule=TOKEN)
    tokenizer_size: int | None = number(None, rule=SIZE)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.qk_norm:
            raise UsageError("C has no qk_norm")
        if self.dim % self.heads or self.heads % (self.kv_heads or self.heads):
            raise UsageError("the heads do not divide the width")
        if self.decoder_self == "ssru" and self.kv_heads not in (None, self.heads):
            raise UsageError("C has no SSRU beside grouped queries")
        if self.position == "rotary" and self.head_dim % 2:
            raise UsageError("rotary positions need heads of even width")
        if self.share_embeddings and self.source_vocabulary != self.target_vocabulary:
            raise UsageError("one table of vectors cannot serve two vocabularies")
        if self.position != "sinusoidal" and self.position_options != SINUSOIDS:
            raise UsageError("only sinusoids have a start, a base and a layout")
        tokens = [self.pad_id, self.start_id, *self.end_ids, *self.barred_ids]
        if self.unknown_id is not None:
            tokens.append(self.unknown_id)
        if self.special_tokens != DEFAULT and max(tokens) >= min(self.vocabularies):
            raise UsageError("a special token is not in the vocabulary")
        if not self.end_ids or (self.tokenizer_size or 0) > min(self.vocabularies):
            raise UsageError("there is no end token, or the tokenizer is larger than the vocabulary")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> NetworkSettings:
        """Return the settings in the content of config.json; UsageError if C does not implement them."""
        if config.get("kind") != KIND or not isinstance(config.get("model"), dict):
            raise UsageError(f"the model is of kind {config.get('kind')!r}")
        settings: dict[str, Any] = config["model"]
        names = {field.name for field in dataclasses.fields(cls)}
        required = {field.name for field in dataclasses.fields(cls) if is_required(field)}
        if unknown := sorted(settings.keys() - names):
            raise UsageError(f"not implemented here: {', '.join(unknown)}")
        if missing := sorted(required - settings.keys()):
            raise UsageError(f"config.json has no {', '.join(missing)}")
        return cls(**settings)

    @property
    def special_tokens(self) -> SpecialTokens:
        return SpecialTokens(
            self.pad_id, self.unknown_id, self.start_id, self.end_ids, self.barred_ids, self.tokenizer_size
        )

    @property
    def position_options(self) -> dict[str, Any]:
        """The options of sinusoidal positions."""
        return {"start": self.position_start, "base": self.position_base, "layout": self.position_layout}

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def vocabularies(self) -> list[int]:
        return [self.source_vocabulary, self.target_vocabulary]

    @property
    def max_positions(self) -> int | None:
        """The number of tokens of the longest text that the model has positions for; None: no limit."""
        return self.max_length if self.position == "learned" else None


def is_required(setting: dataclasses.Field[Any]) -> bool:
    """Whether each config.json has the setting; a choice without a default is declared with None."""
    is_choice = bool(setting.metadata) and bool(setting.metadata["rule"].choices)
    return setting.default is dataclasses.MISSING or (is_choice and setting.default is None)
