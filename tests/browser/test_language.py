"""The page speaks the language of the browser, and another one when asked; a text without translation is English."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect


@pytest.fixture
def spanish(browser: Browser, explorer: Any) -> Any:
    explorer.wait_for("fr-en")
    context = browser.new_context(locale="es-MX", viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(explorer.address, wait_until="networkidle")
    yield page
    context.close()


def test_the_page_speaks_the_language_of_the_browser(spanish: Page) -> None:
    expect(spanish.get_by_test_id("tab-heads")).to_have_text("Cabezas")
    expect(spanish.get_by_test_id("send")).to_have_text("Traducir")
    expect(spanish.locator("html")).to_have_attribute("lang", "es")
    spanish.keyboard.press("?")
    expect(spanish.get_by_test_id("help-dialog")).to_contain_text("mostrar esta ayuda")


def test_the_reader_chooses_another_language_and_the_browser_remembers_it(spanish: Page) -> None:
    spanish.get_by_test_id("language").select_option("fr")
    expect(spanish.get_by_test_id("tab-heads")).to_have_text("Têtes")
    spanish.reload(wait_until="networkidle")
    expect(spanish.get_by_test_id("tab-heads")).to_have_text("Têtes")
    expect(spanish.locator("html")).to_have_attribute("lang", "fr")
    spanish.get_by_test_id("language").select_option("en")
    expect(spanish.get_by_test_id("tab-heads")).to_have_text("Heads")


def test_an_unknown_language_is_english(browser: Browser, explorer: Any) -> None:
    explorer.wait_for("fr-en")
    context = browser.new_context(locale="fi-FI")
    page = context.new_page()
    page.goto(explorer.address, wait_until="networkidle")
    expect(page.get_by_test_id("tab-heads")).to_have_text("Heads")
    context.close()
