"""Help texts, from the docstrings of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def help_text(command: Callable[..., Any]) -> str:
    """Return the docstring of a command as typer should print it: paragraphs fill the width of the terminal.

    Typer keeps the line breaks of a docstring, so the lines of a paragraph are joined here. A paragraph with indented
    lines, such as a list of examples, keeps its lines. Square brackets are escaped, because rich reads them as markup.
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").replace("[", r"\[").split("\n\n")
    return "\n\n".join(text if "\n  " in text else text.replace("\n", " ") for text in paragraphs)
