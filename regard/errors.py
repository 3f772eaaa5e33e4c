"""Errors that a user can fix, the exit code of the command line for each, and deprecated names."""

from __future__ import annotations

import difflib
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any


class RegardError(Exception):
    """An error that the user can fix; the message says what happened, where, and what to do."""

    exit_code = 1


class UsageError(RegardError, ValueError):
    """Invalid arguments or an invalid recipe."""

    exit_code = 2


class DataError(RegardError, ValueError):
    """The input data cannot be used as it is."""

    exit_code = 3


class ModelError(RegardError, ValueError):
    """A model folder is missing, damaged, too new or not trustworthy."""

    exit_code = 4


class DivergedError(RegardError):
    """Training diverged: the gradient was not finite too many times in a row."""

    exit_code = 5


class ResourceError(RegardError):
    """Out of memory or disk space."""

    exit_code = 6


class StoppedError(RegardError):
    """Ctrl-C, SIGTERM or a closed terminal stopped the program after it had saved everything."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def unknown_name(what: str, name: object, known: Sequence[str]) -> str:
    """Return the message for an unknown name, with the most similar name and all known ones."""
    similar = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {similar[0]!r}?" if similar else ""
    return f"unknown {what} {name!r}{hint} (known: {', '.join(known)})"


def deprecated_name(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that warns that `name` is deprecated, and calls the one that replaces it."""
    replacement = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        warnings.warn(f"{name} is deprecated; call {replacement} instead", DeprecationWarning, stacklevel=2)
        return getattr(self, replacement)(*args, **options)

    call.__name__, call.__doc__ = name, f"Deprecated name of `{replacement}`."
    return call
