"""What a command prints: warnings without source code, and lines for a terminal that may go away."""

from __future__ import annotations

import errno
import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def perhaps_closed_terminal() -> Iterator[None]:
    """Print to a terminal that the user may have closed: a training run still reaches its next checkpoint."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


def show_plain_warnings() -> None:
    """Print warnings as messages of regard, without the lines of source code that Python shows."""
    warnings.formatwarning = lambda message, *location, **line: f"regard: warning: {message}\n"


def edit_typed_lines() -> None:
    """Let `input` edit its line and call up earlier ones, where the system has the module for it."""
    with suppress(ImportError):  # on Windows
        importlib.import_module("readline")
