"""The documentation builds without a warning, offline, and its pages hold what they promise."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_pages_are_built(built_docs: Path) -> None:
    sources = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    assert len(sources) > 5
    for source in sources:
        assert (built_docs / source.relative_to(ROOT / "docs").with_suffix(".html")).exists()


def test_every_picture_was_made_by_its_command(built_docs: Path) -> None:
    """Each block of pictures.md is one `regard plot … -o NAME`, which the build ran, and NAME is shown below it."""
    text = (ROOT / "docs/learn/pictures.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```\n!\[[^]]+\]\(\.\./generated/([\w.-]+)\)", text, re.DOTALL)
    assert len(blocks) == text.count("```") // 2 >= 8
    for language, body, name in blocks:
        assert language == "console"
        assert re.fullmatch(rf"\$ regard plot .*-o {re.escape(name)}\n", body)
        assert (built_docs / "_images" / name).stat().st_size > 1000


def test_nothing_is_loaded_from_elsewhere(built_docs: Path) -> None:
    """Scripts, styles, fonts and pictures are the pages' own; ordinary links may lead anywhere."""
    loaded = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']+""")
    for page in built_docs.rglob("*.html"):
        assert loaded.findall(page.read_text(encoding="utf-8")) == [], page.name
    for style in built_docs.rglob("*.css"):
        assert not re.search(r"""url\(["']?(?:https?:)?//""", style.read_text(encoding="utf-8")), style.name


def test_local_links_lead_somewhere(built_docs: Path) -> None:
    """Every link inside the documentation has its page and its anchor."""
    pages = {page: page.read_text(encoding="utf-8") for page in built_docs.rglob("*.html")}
    anchors = {page: set(re.findall(r"""\bid=["']([^"']+)""", text)) for page, text in pages.items()}
    broken = []
    for page, text in pages.items():
        for link in re.findall(r"""<a\b[^>]*\bhref=["']([^"']+)""", text):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append(f"{page.relative_to(built_docs)}: {link}")
    assert broken == []


@pytest.mark.slow  # autodoc for all modules takes as long as all other pages; the next test is without it
def test_reference_shows_every_public_name(built_docs: Path) -> None:
    """Whatever `regard` offers at the top is explained on a page of the reference."""
    import regard

    text = "\n".join(page.read_text(encoding="utf-8") for page in (built_docs / "reference").glob("*.html"))
    described = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="(?:module-)?(regard\.[\w.]+)"', text)}
    assert set(regard.__all__) - {"__version__"} <= described


def test_every_module_is_on_one_page_of_the_reference() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md"))
    listed = Counter(re.findall(r"automodule:: (\S+)", pages))
    files = (path.relative_to(ROOT).with_suffix("") for path in (ROOT / "regard").rglob("*.py"))
    modules = {".".join(file.parts) for file in files if file.name not in ("__init__", "__main__", "version")}
    exercises = ("regard.exercises.topics.", "regard.exercises.solutions.")  # docs/learn/exercises.md lists them
    modules = {module for module in modules if not module.startswith(exercises)}
    assert len(modules) > 250
    assert modules - set(listed) == set()
    assert {module for module, count in listed.items() if count > 1} == set()


def test_every_public_name_comes_from_a_module_of_the_reference() -> None:
    import regard

    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("*.md"))
    listed = set(re.findall(r"automodule:: (\S+)", pages))
    assert {name for name in regard.__all__ if regard._WHERE.get(name, "regard") not in listed} == {"__version__"}
