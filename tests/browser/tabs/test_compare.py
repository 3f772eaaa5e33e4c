"""Compare in a browser: two heads, texts or models on one scale, and their difference.

Elements: map, level, a-layer, a-head, b-layer, b-head, against, text2, led (controls) · output-a-text, output-b-text ·
map-a-table, map-b-table, difference-table, no-difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from page import expect_address
from playwright.sync_api import Page, expect

from regard.look import Trace, merge_words

JANE = "Jane visite l'Afrique en septembre"
HEADS = "&layer=0&head=0&layer2=0&head2=1"  # what the state does not say
PARIS = "Jane visite Paris en septembre"  # no apostrophe: every tokenizer sees the same words


@pytest.fixture
def page(wide: Any, explorer: Any) -> Any:
    def go(state: str = "") -> Page:
        text = "" if "text=" in state or "model=" in state else f"&text={JANE.replace(' ', '+')}"
        wide.page.goto(f"{explorer.address}/#tab=compare{text}{HEADS}{state}")
        expect(wide.page.get_by_test_id("map-b")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def cells(page: Page, testid: str) -> np.ndarray:
    rows = page.get_by_test_id(f"{testid}-table").locator("tbody tr").all()
    return np.array([[float(cell) for cell in row.locator("td").all_text_contents()] for row in rows])


def test_two_heads_and_their_difference(page: Any, explorer: Any) -> None:
    shown = page()
    weights = (
        merge_words(Trace.from_dict(explorer.post("/api/trace", {"model": "fr-en", "text": JANE})))
        .maps["cross"]
        .weights
    )
    np.testing.assert_allclose(cells(shown, "map-a"), weights[0, 0], atol=6e-4)
    np.testing.assert_allclose(cells(shown, "map-b"), weights[0, 1], atol=6e-4)
    np.testing.assert_allclose(cells(shown, "difference"), weights[0, 1] - weights[0, 0], atol=6e-4)
    shown.get_by_test_id("b-head").select_option("0")
    assert not cells(shown, "difference").any()
    assert shown.get_by_test_id("output-a-text").inner_text() == shown.get_by_test_id("output-b-text").inner_text()


def test_two_models_led_along_one_output(page: Any, explorer: Any) -> None:
    """Another model would write other words; led along the same ones, cell by cell it can be compared."""
    shown = page(f"&beside=learned&text={PARIS.replace(' ', '+')}")
    first = explorer.post("/api/trace", {"model": "fr-en", "text": PARIS})
    expect(shown.get_by_test_id("output-b-text")).to_have_text(first["output"])
    expect(shown.get_by_test_id("difference")).to_be_visible()
    other = explorer.post("/api/trace", {"model": "learned", "text": PARIS, "target": first["output"]})
    wanted = merge_words(Trace.from_dict(other)).maps["cross"].weights[0, 1]
    np.testing.assert_allclose(cells(shown, "map-b"), wanted, atol=6e-4)
    np.testing.assert_allclose(cells(shown, "difference"), cells(shown, "map-b") - cells(shown, "map-a"), atol=2e-3)
    shown.get_by_test_id("led").uncheck()
    expect(shown.get_by_test_id("no-difference")).to_contain_text("rows")


def test_recurrent_model_against_a_transformer(page: Any) -> None:
    shown = page(f"&beside=small-rnn&head=best&text={PARIS.replace(' ', '+')}")
    expect(shown.get_by_test_id("difference")).to_be_visible()
    expect(shown.get_by_test_id("b-head")).to_have_count(0)  # it has but one


def test_two_texts(page: Any, explorer: Any) -> None:
    shown = page()
    shown.get_by_test_id("text2").fill("Jane visite l'Afrique")
    shown.keyboard.press("Enter")
    wanted = explorer.post("/api/trace", {"model": "fr-en", "text": "Jane visite l'Afrique"})["output"]
    expect(shown.get_by_test_id("output-b-text")).to_have_text(wanted)
    expect(shown.get_by_test_id("output-a-text")).to_have_text("Jane visits Africa in September")
    expect(shown.get_by_test_id("no-difference")).to_be_visible()
    expect_address(shown, "text2=")
