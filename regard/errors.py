"""Errors that a user can cause, and the exit code that each one ends the command line with."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class RegardError(Exception):
    """A mistake that the user can mend; the message says what, where, why and how."""

    exit_code = 1


class UsageError(RegardError, ValueError):
    """Wrong arguments or a wrong recipe."""

    exit_code = 2


class DataError(RegardError, ValueError):
    """The input data cannot be used as it is."""

    exit_code = 3


class ModelError(RegardError, ValueError):
    """A model folder is missing, damaged, too new or not to be trusted."""

    exit_code = 4


class DivergedError(RegardError):
    """Training came to numbers that are not finite, again and again."""

    exit_code = 5


class ResourceError(RegardError):
    """Out of memory or disk space."""

    exit_code = 6


class StoppedError(RegardError):
    """Ctrl-C or SIGTERM came and was obeyed, after everything was saved."""

    def __init__(self, message: str, signal: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal


def unknown_name(what: str, given: object, known: Sequence[str]) -> str:
    """The message for a name that does not exist: the nearest one, and all that do."""
    near = difflib.get_close_matches(str(given), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {given!r}{hint} (known: {', '.join(known)})"
