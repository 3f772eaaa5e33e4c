"""Terminals: whether a progress bar can redraw its line."""

from __future__ import annotations

import os
import sys
from typing import IO, Any


def redraws(stream: IO[Any]) -> bool:
    """Whether text that was written to a stream can be overwritten: it is a terminal and not a notebook."""
    return stream.isatty() and not in_notebook()


def in_notebook() -> bool:
    """Whether the output goes to a notebook: this process is its kernel, or a command that a cell runs with `!`.

    A notebook may claim to be a terminal, but shows every version of a progress bar one after the other.
    """
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None or "JPY_PARENT_PID" in os.environ
