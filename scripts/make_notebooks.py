"""Make the notebooks of docs/learn/notebooks/ from the pages beside them: python scripts/make_notebooks.py

Text becomes Markdown cells, and each Python block a code cell. Run it when one of the pages changes; a test tells when.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "docs" / "learn" / "notebooks"
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ITSELF = re.compile(r"\sYou can also run it as a \[notebook\]\([^)]*\)\.")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\.md[^)]*\)")  # to another page, which a notebook does not have beside it


def notebook(page: str) -> dict[str, Any]:
    """Return the notebook of a page, as nbformat 4.5 has it."""
    text = LINK.sub(r"\1", ITSELF.sub("", page))
    cells = []
    for i, part in enumerate(BLOCK.split(text)):  # text and code by turns
        if source := part.strip("\n"):
            cell: dict[str, Any] = {"id": f"cell-{i}", "metadata": {}, "source": source.splitlines(keepends=True)}
            cell |= (
                {"cell_type": "code", "execution_count": None, "outputs": []} if i % 2 else {"cell_type": "markdown"}
            )
            cells.append(cell)
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def write_notebooks(folder: Path = PAGES) -> list[Path]:
    """Write the notebook of each page."""
    written = []
    for page in sorted(PAGES.glob("*.md")):
        content = json.dumps(notebook(page.read_text("utf-8")), ensure_ascii=False, indent=1)
        written.append(folder / f"{page.stem}.ipynb")
        written[-1].write_text(f"{content}\n", "utf-8")
    return written


if __name__ == "__main__":
    write_notebooks()
