"""Write the links from the tags of the lectures to their tests: the test column of docs/learn/lectures.md, and
docs/learn/lecture-tests.md, the page they lead to. Run it when a test of a tag is added or moves; a test tells when.
"""

from __future__ import annotations

import ast
import os
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs/learn/lectures.md"
PAGE = ROOT / "docs/learn/lecture-tests.md"
TESTS = ROOT / "tests/lectures"
TEST_COLUMN = 4  # of a row split at its bars
TITLE = """# The tests of the lectures

Each function is named after the tag in [the table](lectures.md) whose formula, number or property it checks.
"""


def read_pending() -> dict[str, str]:
    """The tags that have no test yet, each with the reason."""
    return tomllib.loads((TESTS / "pending.toml").read_text(encoding="utf-8"))


def test_files(folder: Path) -> list[Path]:
    """The files with tests of the lectures, in the order of their tags."""
    return sorted(folder.rglob("test_*.py"), key=lambda path: path.name)


def tests_by_tag(folder: Path) -> dict[str, dict[str, str]]:
    """For each tag its tests, functions named test_<TAG>_…, each with the name of its file."""
    tests: dict[str, dict[str, str]] = {}
    for path in test_files(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (match := re.match(r"test_([A-Z]\d+)_", node.name)):
                tests.setdefault(match[1], {})[node.name] = path.stem
    return tests


def with_links(table: str, tested: dict[str, dict[str, str]]) -> str:
    """The page with the table, its test column filled; a tag without a test is pending."""

    def fill(match: re.Match[str]) -> str:
        files = sorted(set(tested.get(match["tag"], {}).values()))
        links = [f"[`{name}`](lecture-tests.md#{name.replace('_', '-')}-py)" for name in files]
        cells = match[0].split("|")
        cells[TEST_COLUMN] = f" {', '.join(links) or 'pending'} "
        return "|".join(cells)

    return re.sub(r"^\| (?P<tag>[A-Z]\d+) \|.*$", fill, table, flags=re.MULTILINE)


def page_of_tests(folder: Path) -> str:
    """A page that shows every file with tests of tags under a heading of its own."""
    sections = [
        f"\n## `{path.name}`\n\n```{{literalinclude}} {os.path.relpath(path, PAGE.parent)}\n:language: python\n```\n"
        for path in test_files(folder)
    ]
    return TITLE + "".join(sections)


if __name__ == "__main__":
    TABLE.write_text(with_links(TABLE.read_text(encoding="utf-8"), tests_by_tag(TESTS)), encoding="utf-8")
    PAGE.write_text(page_of_tests(TESTS), encoding="utf-8")
