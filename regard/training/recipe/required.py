"""Access to settings that a complete recipe has."""

from __future__ import annotations

from typing import TypeVar

from regard.errors import UsageError

Value = TypeVar("Value")


def required(value: Value | None) -> Value:
    """Return a setting that `complete` (defaults.py) has filled in; raise UsageError if it is None."""
    if value is None:
        raise UsageError("the recipe is not complete: see regard.training.recipe.defaults.complete")
    return value
