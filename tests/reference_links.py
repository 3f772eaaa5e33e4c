"""Links from the documentation to code: `[`Beam`](reference/decoding.md#regarddecodingsearchesbeam)`.

They are ordinary Markdown, so that they work on GitHub too: the anchor is that of the heading of a module on a page of
the reference, and the text is the name of something in that module.
"""

from __future__ import annotations

import re
from pathlib import Path

REFERENCE = Path(__file__).parents[1] / "docs/reference"
LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)*reference/([\w-]+\.md)#(\w+)\)")


def reference_names(text: str) -> list[str]:
    """The dotted names of what a text links to; an AssertionError if a page has no such heading."""
    names = []
    for shown, page, anchor in LINK.findall(text):
        headings = re.findall(r"^## `([\w.]+)`$", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)
        modules = {heading.replace(".", ""): heading for heading in headings}
        assert anchor in modules, f"{page} has no heading for #{anchor}"
        module, name = modules[anchor], shown.strip("`")
        is_module = module.endswith(f".{name}") or name == module or not shown.startswith("`")
        names.append(module if is_module else f"{module}.{name.removeprefix(f'{module}.')}")
    return names
