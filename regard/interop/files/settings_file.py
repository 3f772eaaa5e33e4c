"""The settings of a foreign model: no key is ignored silently.

A family takes the keys that it maps, names those that must have one value, and lists those that cannot change what the
model computes. Any other key is an error that names it, because it might change the model.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar, cast

from regard.errors import ModelError
from regard.models.folder.config_file import shortened

T = TypeVar("T")
REQUIRED: Any = object()


class SettingsFile:
    """The content of a settings file, and the keys that have not been read yet."""

    def __init__(self, path: object, content: Mapping[str, Any], *, allowed: Collection[str] = ()) -> None:
        self.path, self.content, self.unread = path, dict(content), set(content)
        self.allowed = set(allowed)  # keys that the user accepts without knowing what they do

    def take(self, key: str, kind: type[T], default: Any = REQUIRED) -> T:
        """Return the value of a key, of this type; null counts as missing."""
        self.unread.discard(key)
        value: Any = self.content.get(key)
        if value is None:
            if default is REQUIRED:
                raise ModelError(f"{self.path}: the key {key!r} is missing")
            return cast("T", default)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
            raise ModelError(f"{self.path}: {key} must be of type {kind.__name__}, got {shortened(repr(value))}")
        return value

    def take_tokens(self, key: str) -> tuple[int, ...]:
        """Return the token ids of a key that has one, a list of them, or none."""
        self.unread.discard(key)
        value = self.content.get(key)
        tokens = [] if value is None else value if isinstance(value, list) else [value]
        if any(type(token) is not int or token < 0 for token in tokens):
            raise ModelError(f"{self.path}: {key} must be a token or a list of tokens, got {shortened(repr(value))}")
        return tuple(dict.fromkeys(tokens))

    def take_table(self, key: str, **options: Any) -> SettingsFile | None:
        """Return the table under a key, whose keys must be taken as well; None if there is none."""
        table = self.take(key, dict, None)
        return None if table is None else SettingsFile(f"{self.path}: {key}", table, allowed=self.allowed)

    def must_be(self, key: str, *values: Any, why: str = "regard does not implement it") -> None:
        """Refuse the model unless the key is missing, null, or has one of these values."""
        self.unread.discard(key)
        value = self.content.get(key)
        if value is None or key in self.allowed:
            return
        if not any(type(value) is type(valid) and value == valid for valid in values):
            raise ModelError(f"{self.path}: {key} is {shortened(repr(value))}: {why}")

    def must_have(self, *keys: str) -> None:
        """Refuse the model if a key is missing; it may be null."""
        if missing := [key for key in keys if key not in self.content]:
            raise ModelError(f"{self.path}: the key {missing[0]!r} is missing")

    def ignore(self, *keys: str) -> None:
        """Accept keys that do not change what the model computes."""
        self.unread.difference_update(keys)

    def finish(self) -> None:
        """Raise a ModelError that names a key that was not read."""
        if unknown := sorted(self.unread - self.allowed):
            raise ModelError(
                f"{self.path}: regard does not know the key {shortened(repr(unknown[0]))}, which may change what the "
                f"model computes; if you know that it does not, import with --allow-key {shortened(unknown[0])}"
            )
