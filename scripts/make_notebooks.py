"""Make the notebooks of the book and of docs/learn/notebooks/ from their pages: python scripts/make_notebooks.py

Text becomes Markdown cells, and each Python block a code cell. Run it when one of the pages changes; a test tells when.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = {
    DOCS / "learn/notebooks": DOCS / "learn/notebooks",
    DOCS / "book": DOCS / "book/notebooks",
}  # pages, notebooks
NO_CODE = {"index", "comparison", "answers"}  # pages of the book that are no chapters
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ITSELF = re.compile(r"\sYou can also run (?:it|this page) as a \[notebook\]\([^)]*\)\.")
LINK = re.compile(r"\[([^\]]+)\]\([^)]+\.md[^)]*\)")  # to another page, which a notebook does not have beside it
INSTALL = "%pip install -q regard\n%matplotlib inline"  # the second line lets figures that pyplot does not own be shown


def notebook(page: str, *, install: bool = False) -> dict[str, Any]:
    """Return the notebook of a page, as nbformat 4.5 has it; `install` begins with a cell that installs regard."""
    text = LINK.sub(r"\1", ITSELF.sub("", page))
    parts = BLOCK.split(text)  # text and code by turns
    cells = [cell(i, part, is_code=i % 2 == 1) for i, part in enumerate(parts) if part.strip("\n")]
    if install:
        cells.insert(1, cell(len(parts), INSTALL, is_code=True))
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": python}, "nbformat": 4, "nbformat_minor": 5}


def cell(number: int, content: str, *, is_code: bool) -> dict[str, Any]:
    source = content.strip("\n").splitlines(keepends=True)
    common: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}, "source": source}
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    return common | (code if is_code else {"cell_type": "markdown"})


def write_notebooks(root: Path = DOCS) -> list[Path]:
    """Write the notebook of each page into the folder that corresponds to its own under `root`."""
    written = []
    for pages, notebooks in FOLDERS.items():
        target = root / notebooks.relative_to(DOCS)
        target.mkdir(parents=True, exist_ok=True)
        for page in sorted(page for page in pages.glob("*.md") if page.stem not in NO_CODE):
            made = notebook(page.read_text("utf-8"), install=pages.name == "book")
            content = json.dumps(made, ensure_ascii=False, indent=1)
            written.append(target / f"{page.stem}.ipynb")
            written[-1].write_text(f"{content}\n", "utf-8")
    return written


if __name__ == "__main__":
    write_notebooks()
