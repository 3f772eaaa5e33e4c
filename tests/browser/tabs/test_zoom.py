"""One zoom: from a pinned weight down to the products and up to the sum, with the numbers of the model.

Elements: zoom-stage (data-level), zoom-level, zoom-in, zoom-out, zoom-play, zoom-query, zoom-key, zoom-weight and
zoom-step (data-value), zoom-overall, zoom-head-weight, zoom-score, zoom-softmax, zoom-head, zoom-inside ·
weights-how, head-map-how, map-a-how, step-attention-how.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from page import expect_address
from playwright.sync_api import Browser, Page, expect

from regard.look import Trace

CAR = "Marie a acheté une voiture rouge"


@pytest.fixture
def zoom(wide: Any, explorer: Any) -> Any:
    def go(state: str = "") -> Page:
        wide.page.goto("about:blank")
        wide.page.goto(f"{explorer.address}/#tab=zoom{state}")
        expect(wide.page.get_by_test_id("zoom-query").first).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def number(page: Page, testid: str) -> float:
    return float(page.get_by_test_id(testid).inner_text().replace("−", "-"))


def weights_of(page: Page) -> np.ndarray:
    return np.array(page.get_by_test_id("zoom-weight").evaluate_all("all => all.map(one => +one.dataset.value)"))


def recorded(explorer: Any, model: str) -> Trace:
    return Trace.from_dict(explorer.post("/api/trace", {"model": model, "text": CAR, "vectors": True}))


def test_every_number_of_the_zoom_is_the_models(zoom: Any, explorer: Any) -> None:
    """The score, the softmax and the sum, from the vectors that Python records."""
    trace = recorded(explorer, "fr-en")
    cross = trace.maps["cross"]
    assert trace.alignment is not None and cross.q is not None and cross.k is not None
    for layer, head, row, col in ((2, 3, 3, 5), (0, 7, 4, 0)):
        page = zoom(f"&map=cross&layer={layer}&head={head}&row={row}&col={col}")
        assert abs(number(page, "zoom-overall") - trace.alignment.weights[0, 0, row, col]) < 6e-4
        page.get_by_test_id("zoom-in").click()
        weights = cross.weights[layer, head, row]
        assert abs(number(page, "zoom-head-weight") - weights[col]) < 6e-4
        table = page.get_by_test_id("zoom-head").all_inner_texts()
        np.testing.assert_allclose(np.array(table, float), cross.weights[:, :, row, col].ravel(), atol=6e-3)
        page.get_by_test_id("zoom-in").click()
        page.get_by_test_id("zoom-in").click()
        scores = cross.k[layer, head] @ cross.q[layer, head, row]
        assert abs(number(page, "zoom-score") - scores[col]) < 1e-3 * (1 + abs(scores[col]))
        page.get_by_test_id("zoom-in").click()
        exponentials = np.exp(scores / np.sqrt(cross.q.shape[-1]))
        softmax = exponentials / exponentials.sum()
        assert abs(number(page, "zoom-softmax") - softmax[col]) < 1e-3
        np.testing.assert_allclose(weights_of(page), softmax, atol=1e-4)
        np.testing.assert_allclose(softmax, weights, atol=2e-3)
        page.get_by_test_id("zoom-in").click()
        expect(page.get_by_test_id("zoom-in")).to_be_disabled()
        assert cross.v is not None
        summed = softmax @ cross.v[layer, head]
        assert abs(number(page, "zoom-score") - summed[0]) < 2e-3


def test_words_move_from_level_to_level(browser: Browser, explorer: Any) -> None:
    """The same elements are on the stage from the sentence to the sum; with reduced motion they jump."""
    for motion in ("no-preference", "reduce"):
        context = browser.new_context(reduced_motion=motion)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{explorer.address}/#tab=zoom")
        word = page.get_by_test_id("zoom-key").nth(4)
        expect(page.get_by_test_id("zoom-weight").first).to_be_attached()  # the worksheet is there
        word.evaluate("one => one.marked = true")
        places = []
        for level in range(6):
            page.get_by_test_id("zoom-level").locator("label").nth(level).click()
            expect(page.get_by_test_id("zoom-stage")).to_have_attribute("data-level", str(level))
            assert word.evaluate("one => one.marked") is True
            places.append(word.evaluate("one => one.style.left + one.style.top + one.style.height"))
        assert len(set(places)) >= 3
        duration = word.evaluate("one => getComputedStyle(one).transitionDuration")
        assert (duration == "0s") == (motion == "reduce")
        context.close()


def test_a_pinned_weight_of_any_tab_leads_into_the_zoom(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    text = CAR.replace(" ", "+")
    for state, link in (
        ("tab=alignment&pin=3.5", "weights-how"),
        ("tab=heads&map=cross&layer=2&head=3&pin=3.5", "head-map-how"),
        ("tab=decode&search=beam&step=3", "step-attention-how"),
    ):
        page.goto("about:blank")
        page.goto(f"{explorer.address}/#{state}&text={text}")
        how = page.get_by_test_id(link)
        expect(how).to_contain_text("made?")
        asked = float(how.inner_text().split()[2])
        how.click()
        expect_address(page, "tab=zoom", "row=3", "col=5")
        expect(page.get_by_test_id("zoom-query").nth(3)).to_have_attribute("aria-pressed", "true")
        if "layer=2" in state:
            page.get_by_test_id("zoom-in").click()
            assert abs(number(page, "zoom-head-weight") - asked) < 6e-3
        elif "alignment" in state:
            assert abs(number(page, "zoom-overall") - asked) < 6e-3
    page.goto("about:blank")
    page.goto(f"{explorer.address}/#tab=compare&text={text}")
    page.get_by_test_id("map-a-canvas").click(position={"x": 8, "y": 8})
    page.get_by_test_id("map-a-how").click()
    expect_address(page, "tab=zoom")
    page.get_by_test_id("zoom-level").locator("label").nth(4).click()
    page.get_by_test_id("zoom-inside").click()  # and on to the whole block
    expect_address(page, "tab=inside", "cell=cross.weights")
    expect(page.get_by_test_id("arithmetic")).to_be_visible()
    assert (wide.errors, wide.blocked) == ([], [])


def test_a_recurrent_translator_adds_before_it_multiplies(zoom: Any, explorer: Any) -> None:
    trace = recorded(explorer, "small-rnn")
    page = zoom("&model=small-rnn&row=1&col=2&level=4")
    expect(page.get_by_test_id("zoom-weight").first).to_be_visible()
    np.testing.assert_allclose(weights_of(page), trace.maps["rnn"].weights[0, 0, 1], atol=1e-4)
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_test_id("zoom-explanation")).to_contain_text("w · tanh(query + key)")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_test_id("zoom-explanation")).to_contain_text("The score adds the two")


def test_an_encoder_has_a_zoom_and_a_model_without_attention_says_why_not(zoom: Any, wide: Any, explorer: Any) -> None:
    page = zoom("&model=small-encoder&level=4")
    expect(page.get_by_test_id("zoom-weight").first).to_be_visible()
    assert abs(weights_of(page).sum() - 1) < 1e-5
    wide.page.goto(f"{explorer.address}/#tab=zoom&model=no-attention")
    expect(wide.page.get_by_text("there is no weight to take apart")).to_be_visible()
