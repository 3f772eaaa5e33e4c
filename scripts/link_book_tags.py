"""Write the links of the book from each lecture tag to its code and tests, as docs/learn/lectures.md has them.

A line that begins with `> **D9**` in a chapter stands below the passage about the tag. Run this when such a line is
added, or when the code or a test of a tag moves; a test tells when.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOOK = ROOT / "docs/book"
TABLE = ROOT / "docs/learn/lectures.md"
CODE_COLUMN, TEST_COLUMN = 3, 4  # of a row split at its bars
LINE = re.compile(r"^> \*\*(?P<tag>[A-H]\d+)\*\*.*$", re.MULTILINE)


def chapters() -> list[Path]:
    return sorted(BOOK.glob("*.md"))


def tag_lines(table: str) -> dict[str, str]:
    """The line of each tag, with links that work from docs/book."""
    lines = {}
    for row in re.findall(r"^\| [A-H]\d+ \|.*$", table, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        code, test = (re.sub(r"\]\((?!\.\./)", "](../learn/", cells[i]) for i in (CODE_COLUMN, TEST_COLUMN))
        lines[cells[1]] = f"> **{cells[1]}** · code: {code} · test: {test}"
    return lines


def with_links(chapter: str, lines: dict[str, str]) -> str:
    return LINE.sub(lambda match: lines[match["tag"]], chapter)


if __name__ == "__main__":
    current = tag_lines(TABLE.read_text("utf-8"))
    for path in chapters():
        path.write_text(with_links(path.read_text("utf-8"), current), "utf-8")
