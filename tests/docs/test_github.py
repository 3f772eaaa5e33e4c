"""The pages read well on GitHub, too: only ordinary links, and their text is in the file."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from ..reference_links import reference_names

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)])
TAG = re.compile(r"(?<![\w`./#-])[A-H]\d{1,2}(?![\w`.-])")


def prose(text: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def faults(text: str) -> list[str]:
    """Links without text, and roles that only Sphinx knows."""
    return re.findall(r"(?<!!)\[\]\([^)]*\)|(?<!`)\{[a-z]+(?::[a-z]+)?\}`[^`]*`|<project:[^>]*>", prose(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_have_their_text_and_roles_are_not_used(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


def test_links_to_the_reference_name_what_is_there() -> None:
    names = [name for page in PAGES for name in reference_names(page.read_text(encoding="utf-8"))]
    assert len(names) > 100
    for name in set(names):
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_with_lecture_tags_says_what_they_are(page: Path) -> None:
    """A page that cites a tag such as D9 links to the list of tags; the list itself explains them."""
    text = prose(page.read_text(encoding="utf-8"))
    if page.name in ("lectures.md", "lecture-tests.md", "CHANGELOG.md") or not TAG.search(text):
        return
    first = TAG.search(text)
    assert first is not None
    end_of_paragraph = text.find("\n\n", first.end()) % (len(text) + 1)
    link = re.search(r"\]\([\w./-]*\blectures\.md[^)]*\)", text[:end_of_paragraph])
    assert link is not None, f"{first[0]} is not explained where it first occurs"


@pytest.mark.parametrize(
    "text", ["see [](recipes.md)", "{py:obj}`~regard.attend`", "the {doc}`page`", "<project:#label>", "[](#here)"]
)
def test_a_planted_fault_is_found(text: str) -> None:
    assert faults(text) != []


@pytest.mark.parametrize(
    "text", ["[recipes](recipes.md)", "![](a.png)", "```\n[](x)\n```", "`{source}` and `{target}`"]
)
def test_what_is_allowed_is_not_reported(text: str) -> None:
    assert faults(text) == []
