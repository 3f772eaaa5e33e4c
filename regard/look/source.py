"""Show the source code of a function or class in a notebook, so that a text about code never needs a copy of it."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SourceCode:
    """Source code that a notebook displays in colour."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.text}\n```"


def show_source(thing: Any) -> SourceCode:
    """Return the source code of a function, method, class or module as it is installed."""
    return SourceCode(textwrap.dedent(inspect.getsource(thing)).rstrip())
