"""Pages that Python wrote, in a real browser: from a file, and in a notebook's frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

import regard
from regard.look import trace_text
from regard.look.trace.trace import Trace

TEXT = "Jane visite l'Afrique en septembre"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_text(regard.load("fr-en"), TEXT, name="fr-en")


def opened(browser: Browser, path: Path) -> tuple[Page, list[str]]:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else wrong.append(asked.url)
    )
    page.goto(path.as_uri())
    return page, wrong


def test_a_file_needs_nothing_but_itself(browser: Browser, trace: Trace, tmp_path: Path) -> None:
    page, wrong = opened(browser, trace.explore(tmp_path / "jane.html", show=False))
    page.get_by_text("Jane visits Africa in September").first.wait_for()
    page.close()
    assert wrong == []


def test_a_notebook_shows_it_in_a_frame(browser: Browser, trace: Trace, tmp_path: Path) -> None:
    cell: Any = trace._repr_mimebundle_()["text/html"]
    (tmp_path / "notebook.html").write_text(f"<!doctype html><title>a notebook</title>{cell}", "utf-8")
    page, wrong = opened(browser, tmp_path / "notebook.html")
    page.frame_locator("iframe").get_by_text("Jane visits Africa in September").first.wait_for()
    page.frame_locator("iframe").get_by_role("tab", name="Heads").or_(
        page.frame_locator("iframe").get_by_role("link", name="Heads")
    ).or_(page.frame_locator("iframe").get_by_role("button", name="Heads")).first.click()
    page.frame_locator("iframe").get_by_test_id("view-heads").wait_for()
    page.close()
    assert wrong == []
