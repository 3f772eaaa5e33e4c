"""Checked settings: frozen dataclasses whose fields declare their type, range or choices.

This module checks the configs of models and the tables of recipes. A wrong value raises a `SettingError` that carries
the name of the setting, so that the reader of a recipe can find its line.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from regard.errors import UsageError, unknown_name
from regard.registry import Registry

# The name in other toolkits -> the name here.
OTHER_NAMES = {
    "batch_size": "batch_tokens",
    "beam_size": "beam",
    "epochs": "steps",
    "fp16": "precision",
    "grad_accum": "accumulate",
    "learning_rate": "lr",
    "max_steps": "steps",
    "src": "source",
    "tgt": "target",
    "vocab_size": "size",
    "warmup_steps": "warmup",
}


class SettingError(UsageError):
    """A setting with a wrong value, or settings that contradict each other.

    `keys` are the names of the settings involved, the most likely culprit first; `key` is that first one. In a recipe
    they are dotted: "training.lr".
    """

    def __init__(self, key: str, message: str, *others: str) -> None:
        super().__init__(message)
        self.keys = (key, *others)

    @property
    def key(self) -> str:
        return self.keys[0]

    def within(self, table: str) -> SettingError:
        """Return the same error for settings of a table, such as "model"."""
        key, *others = (f"{table}.{name}" for name in self.keys)
        return SettingError(key, str(self), *others)


@dataclass(frozen=True)
class ValueRule:
    """The values that a setting may have: a range of numbers, or a choice of names."""

    above: float = -math.inf  # excluded
    least: float = -math.inf  # included
    most: float = math.inf  # included
    below: float = math.inf  # excluded
    choices: Collection[str] = ()  # a registry grows when a user adds a name

    def complaint(self, value: float) -> str | None:
        """Return what is wrong with a number, or None if nothing is."""
        if self.least <= value <= self.most and self.above < value < self.below:
            return None
        if math.isfinite(self.least) and math.isfinite(self.most):
            kind = "a whole number" if isinstance(value, int) else "a number"
            return f"must be {kind} from {self.least:.0f} to {self.most:.0f}, got {value!r}"
        bounds = {"above": self.above, "at least": self.least, "at most": self.most, "below": self.below}
        finite = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
        return f"must be {' and '.join(finite)}, got {value!r}"


SHARE = ValueRule(least=0, below=1)  # a probability below 1


def number(default: Any = dataclasses.MISSING, *, rule: ValueRule) -> Any:
    """Declare a field that holds a number (or a tuple of numbers) within the rule's range."""
    return field(default=default, metadata={"rule": rule})


def choice(default: str | None, names: Collection[str]) -> Any:
    """Declare a field that holds one of these names."""
    return field(default=default, metadata={"rule": ValueRule(choices=names)})


@cache
def field_types(settings: type) -> dict[str, Any]:
    """Return the declared type of each field."""
    return get_type_hints(settings)


def check_fields(settings: Any, table: str = "") -> None:
    """Check each field of a frozen dataclass against its type and rule, and convert it to the declared type.

    With `table`, the settings are named as in a recipe: "training.lr".
    """
    types = field_types(type(settings))  # type: ignore[arg-type]  # a class is hashable
    for declared in dataclasses.fields(settings):
        key = f"{table}.{declared.name}" if table else declared.name
        rule: ValueRule | None = declared.metadata.get("rule")
        value = getattr(settings, declared.name)
        if rule is not None and rule.choices:
            nullable = NoneType in get_args(types[declared.name])
            if not (value is None and nullable) and value not in rule.choices:
                if isinstance(rule.choices, Registry):
                    raise SettingError(key, rule.choices.why_unknown(value))
                raise SettingError(key, unknown_name(key, value, tuple(rule.choices)))
            continue
        value = _converted(key, value, types[declared.name])
        object.__setattr__(settings, declared.name, value)
        for part in value if isinstance(value, tuple) else (value,):
            if rule is not None and part is not None and (complaint := rule.complaint(part)):
                raise SettingError(key, f"{key} {complaint}")


def unknown_key(key: str, where: str, known: Sequence[str]) -> str:
    """Return the message for an unknown key, with the most similar key, or else all known ones."""
    others = {name: own_name for name, own_name in OTHER_NAMES.items() if own_name in known}
    similar = difflib.get_close_matches(key, [*known, *others], n=1)
    hint = f"; did you mean {others.get(similar[0], similar[0])!r}?" if similar else f" (known: {', '.join(known)})"
    return f"unknown key {key!r} in {where}{hint}"


def _converted(key: str, value: Any, declared: Any) -> Any:
    """Convert the value to the declared type; raise SettingError if it does not fit."""
    types = get_args(declared) if isinstance(declared, UnionType) else (declared,)
    if value is None and NoneType in types:
        return None
    for wanted in types:
        if wanted is float and type(value) in (int, float) and math.isfinite(value):
            return float(value)
        if wanted in (int, bool, str) and type(value) is wanted:  # True is not a number here
            return value
        if dataclasses.is_dataclass(wanted) and isinstance(value, wanted):  # type: ignore[arg-type]
            return value
        if get_origin(wanted) is tuple:
            parts, (first, last) = [value] if isinstance(value, str) else value, get_args(wanted)
            if isinstance(parts, list | tuple) and (last is ... or len(parts) == 2):
                return tuple(_converted(key, part, first) for part in parts)
    raise SettingError(key, f"{key} must be {_described(types[0])}, got {value!r}")


def _described(wanted: Any) -> str:
    if get_origin(wanted) is tuple:
        first, last = get_args(wanted)
        return "a text or a list of texts" if last is ... else f"a list of two, each {_described(first)}"
    if dataclasses.is_dataclass(wanted):
        return "a table of settings"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(
        wanted, "a text or a number"
    )
