"""The base class of all configs: a frozen dataclass that checks its settings when it is created."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from regard.errors import unknown_name
from regard.settings import SHARE, SettingError, ValueRule, check_fields, number
from regard.text.tokenizers.special_tokens import SpecialTokens

# Sizes beyond these come from a damaged or hostile file, not from a model.
SIZE = ValueRule(least=1, most=2**24)
COUNT = ValueRule(least=1, most=1024)
TOKEN = ValueRule(least=0, most=2**24)

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
    def special_tokens(self) -> SpecialTokens:
        return SpecialTokens(pad=self.pad_id)

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
    def max_positions(self) -> int | None:
        """The number of tokens of the longest text that the model has positions for; None: no limit."""
        return None

    @property
    def vocabularies(self) -> list[int]:
        """The sizes of the vocabularies, source first."""
        return [getattr(self, name) for name in self.vocabulary_fields()]

    @property
    def folder_format(self) -> int:
        """The format of the model folder that these settings need."""
        return 1

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
