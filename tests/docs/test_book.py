"""Every tag and formula of the lectures stands in its chapter of the book, with links to code and tests.

The build of the documentation runs the chapters (docs/run_chapters.py); test_build.py and tests/browser look at the
result.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs/book"
CHAPTERS = {
    "tokens": "A",
    "positions": "B",
    "recurrent": "C",
    "attention": "D",
    "transformer": "E",
    "training": "E",
    "language-models": "E",
    "random-features": "F",
    "elsewhere": "G",
}
CHAPTERS = {name: letter for name, letter in CHAPTERS.items() if (BOOK / f"{name}.md").exists()}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # a dataclass looks itself up
    spec.loader.exec_module(module)
    return module


links = load(ROOT / "scripts/link_book_tags.py")
runner = load(ROOT / "docs/run_chapters.py")
LINES = links.tag_lines(links.TABLE.read_text("utf-8"))

# What the displayed formulas of a tag's section contain, without spaces.
FORMULAS = {
    "A1": [r"(e_iW)_j=", r"W_{ij}"],
    "A2": [r"\log\sigma(-u_{c_i}\cdotv_w)", r"b_i+b'_j-\logX_{ij}"],
    "A3": [r"s=\frac{1}{n}\sum_{t=1}^{n}x_t"],
    "B1": [r"f(PX)=Pf(X)"],
    "B2": [r"PE(t,2i)=\sin\left(\frac{t}{10000^{2i/d}}\right)", r"PE(t,2i+1)=\cos\left(\frac{t}{10000^{2i/d}}\right)"],
    "B3": [r"p_t\cdotp_{t'}=\sum_{i=0}^{d/2-1}\cos\bigl(\omega_i(t-t')\bigr)", r"p_{t+k}=R_k\,p_t"],
    "B4": [r"\operatorname{Var}_{|t-t'|}"],
    "B7": [r"\operatorname{rot}_i(q)\cdot\operatorname{rot}_j(k)"],
}


def text_of(chapter: str) -> str:
    return (BOOK / f"{chapter}.md").read_text("utf-8")


def sections(text: str) -> list[str]:
    return re.split(r"^## ", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), flags=re.MULTILINE)


def tags_of(text: str) -> list[str]:
    return links.LINE.findall(text)


def formulas(section: str) -> str:
    return "\n".join(re.sub(r"\s", "", formula) for formula in re.findall(r"\$\$(.*?)\$\$", section, re.DOTALL))


def test_every_tag_stands_in_its_chapter_once() -> None:
    """Tags of A to G stand in the chapter of their letter, those of H (what the lectures stress) in any."""
    found = [(tag, chapter) for chapter in CHAPTERS for tag in tags_of(text_of(chapter))]
    written = {*CHAPTERS.values()}
    assert sorted(tag for tag, _ in found if tag[0] in written) == sorted(tag for tag in LINES if tag[0] in written)
    assert all(tag[0] in (CHAPTERS[chapter], "H") for tag, chapter in found)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_links_of_tags_are_those_of_the_table(chapter: str) -> None:
    text = text_of(chapter)
    assert links.with_links(text, LINES) == text, "run scripts/link_book_tags.py"


@pytest.mark.parametrize("tag", FORMULAS)
def test_formulas_stand_in_the_section_of_their_tag(tag: str) -> None:
    (section,) = (part for chapter in CHAPTERS for part in sections(text_of(chapter)) if tag in tags_of(part))
    for fragment in FORMULAS[tag]:
        assert fragment in formulas(section), f"{tag}: {fragment}"


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_what_the_book_promises(chapter: str) -> None:
    """A question, code, formulas, a figure, a claim that is checked, and exercises."""
    text = text_of(chapter)
    assert re.match(r"# .+\n\n\*.+\?\*\n\n", text)
    assert text.count("```python\n") >= 8 and text.count("$$") >= 6
    assert "show_source(" in text and "assert " in text and ("plt." in text or "regard.look." in text)
    assert (
        text.count("## Exercises") == 1 and len(re.findall(r"^\d\. ", text.split("## Exercises")[1], re.MULTILINE)) >= 5
    )
    assert "![" not in text, "a figure that the chapter does not draw"


def test_a_block_shows_what_it_prints_and_returns(tmp_path: Path) -> None:
    first = "```python\nprint('printed')\n1 + 1\n```\n"
    second = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1]);\n```\n"
    page = f"# x\n\n{first}end\n{second}"
    shown = runner.run_chapter("book/planted", page, tmp_path)
    assert ":class: output\nprinted\n```\n" in shown and ":class: output\n2\n```\n" in shown
    assert "(../generated/book-planted-1.svg)" in shown and "Line2D" not in shown
    assert (tmp_path / "book-planted-1.svg").stat().st_size > 1000


def test_a_block_that_fails_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        runner.run_chapter("book/planted", "# x\n\n```python\n1 / 0\n```\n", tmp_path)
    assert failure.value.__notes__ == ["in the block of planted.md that begins on line 4"]
