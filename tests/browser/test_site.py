"""The site that `make site` builds, from a plain file server with other machines blocked: the book, its formulas, the
explorer inside a chapter, and the notebooks. The pages are those of the built documentation.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CHAPTERS = 9
TYPESET = """() => {
    const formulas = [...document.querySelectorAll("article .math")];
    return formulas.length > 5 && formulas.every(formula => formula.querySelector("mjx-container"));
}"""


def test_the_book_is_read_from_chapter_to_chapter(wide: Any, docs_address: str) -> None:
    """From the first page through all chapters by their links; in each, formulas and figures are there."""
    page = wide.page
    page.goto(f"{docs_address}/index.html")
    page.get_by_role("link", name="The book").first.click()
    page.locator("article ol a").first.click()
    for chapter in range(CHAPTERS):
        page.wait_for_function(TYPESET)
        assert page.locator("[data-mjx-error]").count() == 0, page.url
        assert page.eval_on_selector_all(
            "article img", "all => all.every(one => one.complete && one.naturalWidth > 100)"
        )
        assert wide.sideways() == 0, page.url
        if chapter < CHAPTERS - 1:
            page.locator(".next-page").click()
            page.wait_for_load_state("load")
    assert page.url.endswith("/book/elsewhere.html")
    assert (wide.errors, wide.blocked) == ([], [])


def test_the_explorer_works_inside_a_chapter(wide: Any, docs_address: str) -> None:
    page = wide.page
    page.goto(f"{docs_address}/book/attention.html")
    page.locator("iframe").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe")
    frame.get_by_text("Mary bought a red car").first.wait_for()
    frame.get_by_role("tab", name="Heads").or_(frame.get_by_text("Heads", exact=True)).first.click()
    frame.get_by_role("heading", name="Heads").wait_for()
    assert (wide.errors, wide.blocked) == ([], [])


def test_each_chapter_offers_its_notebook(built_docs: Path, docs_address: str) -> None:
    chapters = sorted((ROOT / "docs/book/notebooks").glob("*.ipynb"))
    assert len(chapters) == CHAPTERS
    for notebook in chapters:
        text = (built_docs / "book" / f"{notebook.stem}.html").read_text("utf-8")
        link = re.search(rf'href="\.\./(_downloads/\w+/{notebook.name})"', text)
        assert link is not None, notebook.name
        with urllib.request.urlopen(f"{docs_address}/{link[1]}") as answer:
            assert json.load(answer)["nbformat"] == 4


def test_the_workflow_publishes_what_make_site_builds() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    workflow = (ROOT / ".github/workflows/pages.yml").read_text("utf-8")
    target = re.search(r"^site:.*?(?=^\S)", makefile, re.MULTILINE | re.DOTALL)
    assert target is not None
    for part in (
        "-t site",
        "cp docs/book/notebooks/*.ipynb",
        "touch site/.nojekyll",
        "regard explore --export site/explorer",
    ):
        assert part in target[0]
    assert re.search(r"run: make site\b", workflow) and re.search(r"path: site$", workflow, re.MULTILINE)
    assert "actions/deploy-pages@" in workflow and "pages: write" in workflow
