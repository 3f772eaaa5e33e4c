"""What a setting of a recipe is: its type, its rule, and the messages for one that does not fit."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from regard.errors import UsageError, unknown_name

# What other toolkits call it -> what it is here.
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


class RecipeError(UsageError):
    """A recipe that cannot be. `key` is the dotted name of the setting, so that a reader can tell its line."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Rule:
    """Which values a setting may have."""

    above: float = -math.inf  # excluded
    least: float = -math.inf  # included
    most: float = math.inf  # included
    below: float = math.inf  # excluded
    choices: tuple[str, ...] = ()

    def complaint(self, value: Any) -> str | None:
        """What is wrong with the value, None when nothing is."""
        if not self.least <= value <= self.most or not self.above < value < self.below:
            bounds = {"above": self.above, "at least": self.least, "at most": self.most, "below": self.below}
            told = [f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound)]
            return f"must be {' and '.join(told)}, got {value!r}"
        return None


def number(default: Any, *, rule: Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def choice(default: str | None, names: tuple[str, ...]) -> Any:
    return field(default=default, metadata={"rule": Rule(choices=names)})


def check_fields(settings: Any, table: str) -> None:
    """Hold each field of a table against its type and rule; numbers and lists get the type that is declared."""
    wanted = get_type_hints(type(settings))
    for one in dataclasses.fields(settings):
        key, rule = f"{table}.{one.name}", one.metadata.get("rule")
        value = _fitted(key, getattr(settings, one.name), wanted[one.name])
        object.__setattr__(settings, one.name, value)
        for part in value if isinstance(value, tuple) else (value,):
            if rule is None or part is None:
                continue
            if rule.choices and part not in rule.choices:
                raise RecipeError(key, unknown_name(key, part, rule.choices))
            if not rule.choices and (complaint := rule.complaint(part)):
                raise RecipeError(key, f"{key} {complaint}")


def unknown_key(key: str, where: str, known: Sequence[str]) -> str:
    """The message for a key that does not exist: the nearest one, else all that do."""
    others = {name: here for name, here in OTHER_NAMES.items() if here in known}
    near = difflib.get_close_matches(key, [*known, *others], n=1)
    hint = f"; did you mean {others.get(near[0], near[0])!r}?" if near else f" (known: {', '.join(known)})"
    return f"unknown key {key!r} in {where}{hint}"


def _fitted(key: str, value: Any, wanted: Any) -> Any:
    """The value as the declared type, if it is one."""
    kinds = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    if value is None and NoneType in kinds:
        return None
    for kind in kinds:
        if kind is float and type(value) in (int, float) and math.isfinite(value):
            return float(value)
        if kind in (int, bool, str) and type(value) is kind:  # True is no number
            return value
        if get_origin(kind) is tuple:
            parts, (first, last) = [value] if isinstance(value, str) else value, get_args(kind)
            if isinstance(parts, list | tuple) and (last is ... or len(parts) == 2):
                return tuple(_fitted(key, part, first) for part in parts)
    raise RecipeError(key, f"{key} must be {_spoken(kinds[0])}, got {value!r}")


def _spoken(kind: Any) -> str:
    if get_origin(kind) is tuple:
        first, last = get_args(kind)
        return "a text or a list of texts" if last is ... else f"a list of two, each {_spoken(first)}"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(
        kind, "a text or a number"
    )
