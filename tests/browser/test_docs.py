"""The documentation in a browser: no error, nothing from elsewhere, and it fits a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PAGES = ["index", "book/tokens", "learn/pictures", "reference/attention"]
OTHERS = [
    "learn/lectures",
    "learn/letters",
    "training/recipes",
    "learn/lecture-tests",
    "develop/architecture",
    "training/train",
    "use/translate",
    "learn/compare",
]  # made of the same: tables, code, pictures


@pytest.mark.parametrize("name", [*PAGES, *(pytest.param(page, marks=pytest.mark.slow) for page in OTHERS)])
def test_page_is_clean_on_a_desk_and_fits_a_phone(name: str, wide: Any, docs_address: str) -> None:
    wide.page.goto(f"{docs_address}/{name}.html", wait_until="networkidle")
    assert wide.page.locator("h1").count() == 1
    assert wide.sideways() == 0
    wide.page.set_viewport_size({"width": 390, "height": 844})
    try:
        assert (wide.errors, wide.blocked, wide.sideways()) == ([], [], 0)
    finally:
        wide.page.set_viewport_size({"width": 1280, "height": 900})


def test_pictures_are_shown(wide: Any, docs_address: str) -> None:
    """A picture that is missing or broken has no width of its own."""
    wide.page.goto(f"{docs_address}/learn/pictures.html", wait_until="networkidle")
    widths = wide.page.eval_on_selector_all("article img", "all => all.map(one => one.naturalWidth)")
    assert len(widths) >= 8 and min(widths) > 200


def test_formulas_are_typeset_without_other_machines(wide: Any, docs_address: str) -> None:
    wide.page.goto(f"{docs_address}/book/tokens.html", wait_until="networkidle")
    formulas = wide.page.locator("mjx-container svg")
    formulas.first.wait_for()
    assert formulas.count() > 20
    assert wide.page.locator("[data-mjx-error]").count() == 0
    assert (wide.errors, wide.blocked) == ([], [])


def test_search_finds_a_tag(wide: Any, docs_address: str) -> None:
    wide.page.goto(f"{docs_address}/search.html?q=sinusoidal", wait_until="networkidle")
    wide.page.wait_for_selector("ul.search li")
    assert wide.errors == []


# The watch itself must be able to see what it watches for.


def test_watch_sees_errors_and_refuses_other_machines(wide: Any, planted: tuple[Path, str]) -> None:
    folder, address = planted
    (folder / "bad.html").write_text(
        "<!doctype html><link rel=icon href='data:,'><h1>x</h1><img src='http://example.com/a.png'>"
        "<img src='gone.png'><div style='width: 3000px'>wide</div><script>missing()</script>"
    )
    wide.page.goto(f"{address}/bad.html", wait_until="networkidle")
    assert wide.blocked == ["http://example.com/a.png"]
    assert any("missing" in error for error in wide.errors)
    assert any(error.startswith("404") for error in wide.errors)
    assert wide.sideways() > 1000
