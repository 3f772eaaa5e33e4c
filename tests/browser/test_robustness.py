"""What goes wrong does not take the page away: damaged links, errors of a view, a server that is gone, long texts.

Elements: view-error, reset-tab, draw-again · ask-again, cancel, too-long, alert · text, send.
"""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, Route, expect

from .test_state import TABS

KEYS = [
    "layer", "head", "level", "view", "hide", "cut", "beside", "pin", "map", "row", "col", "off", "rollout", "search",
    "k", "temperature", "p", "seed", "width", "penalty", "step", "force", "rank", "text2", "stack", "token", "cell",
    "preset", "q", "v", "score", "mask", "kind", "n", "d", "base", "pair", "of", "phi", "features", "draw", "word",
    "scene", "model", "trace", "text",
]  # fmt: skip
VALUES = [
    "", "0", "-1", "1e308", "1e9", "NaN", "Infinity", "0.5", "x", "9.9", "1.x", "all", "best", "%", "a" * 200, "<b>",
    "1_2_3*4_5_6", "1e308_-1_0*-2_1_4", "null", "[]", "cross", "enc_self", "__proto__", "constructor",
]  # fmt: skip
FOUND = [  # links that once made the page white, or wrote errors into its console
    "tab=lab&temperature=0", "tab=lab&q=1e308_-1_0*-2_1_4", "tab=lab&temperature=1e-320", "tab=positions&base=0",
    "tab=positions&base=-5", "tab=decode&search=beam&penalty=1e9", "tab=zoom&map=constructor&level=1e9",
    "tab=zoom&level=0.5&row=1.5&col=1.5&layer=0.5&head=0.5", "tab=inside&cell=x:1e9&stack=y", "tab=__proto__",
]  # fmt: skip

# Opens one address after the other in the same page, as somebody who follows links does, and lists what is white.
VISIT = """async states => {
    const bad = []
    for (const state of states) {
        location.hash = state
        const shown = () => document.querySelector('main h1')
        for (let frame = 0; frame < 4 || (frame < 300 && !shown()); frame++) await new Promise(requestAnimationFrame)
        if (!shown() || document.querySelector('[data-testid=view-error]')) bad.push(state)
    }
    return bad
}"""


def damaged_links(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    tabs = [tab for tab in TABS if tab != "input"]
    pairs = [[(rng.choice(KEYS), rng.choice(VALUES)) for _ in range(rng.randint(1, 5))] for _ in range(count)]
    return [f"tab={rng.choice(tabs)}&" + "&".join(f"{key}={quote(value)}" for key, value in some) for some in pairs]


def test_no_link_makes_the_page_white(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    explorer.wait_for("fr-en")
    page.goto(explorer.address)
    expect(page.get_by_test_id("weights")).to_be_visible()
    assert page.evaluate(VISIT, [*FOUND, *damaged_links(150, seed=29)]) == []
    for state in FOUND[:4]:  # and as the first address of a page
        page.goto("about:blank")
        page.goto(f"{explorer.address}/#{state}")
        expect(page.locator("main h1").first).to_be_visible()
    answered = ("400", "404", "503")  # what the server refuses, and requests too many at once
    errors = [error for error in wide.errors if not any(status in error for status in answered)]
    assert (errors, wide.blocked) == ([], [])


BREAK = """() => {
    window.measure = CanvasRenderingContext2D.prototype.measureText
    CanvasRenderingContext2D.prototype.measureText = () => { throw new Error('broken on purpose') }
}"""


def test_an_error_of_a_view_is_shown_and_can_be_left(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    page.goto(f"{explorer.address}/#tab=lab")
    expect(page.get_by_test_id("lab-raw")).to_be_visible()
    page.evaluate(BREAK)
    page.get_by_test_id("tab-positions").click()
    expect(page.get_by_test_id("view-error")).to_contain_text("broken on purpose")
    expect(page.get_by_test_id("tab-lab")).to_be_visible()  # the header is still there
    page.get_by_test_id("tab-lab").click()
    expect(page.get_by_test_id("lab-raw")).to_be_visible()  # other tabs are, too
    page.get_by_test_id("tab-positions").click()
    page.evaluate("() => { CanvasRenderingContext2D.prototype.measureText = window.measure }")
    page.get_by_test_id("draw-again").click()
    expect(page.get_by_test_id("positions-map-readout")).to_be_visible()
    wide.errors.clear()


def test_requests_can_be_repeated_and_cancelled(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    page.goto(f"{explorer.address}/#tab=alignment&text=Le+chat+dort.")
    expect(page.get_by_test_id("waiting")).to_have_count(0)
    expect(page.get_by_test_id("output-text")).to_be_visible()
    before = page.get_by_test_id("output-text").inner_text()
    page.route("**/api/trace", lambda route: route.abort())
    page.get_by_test_id("text").fill("La maison est blanche.")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("alert")).to_contain_text("does not answer")
    page.unroute("**/api/trace")
    page.get_by_test_id("ask-again").click()
    expect(page.get_by_test_id("alert")).to_have_count(0)
    expect(page.get_by_test_id("output-text")).not_to_have_text(before)
    answer = page.get_by_test_id("output-text").inner_text()
    held: list[Route] = []
    page.route("**/api/trace", lambda route: held.append(route))
    page.get_by_test_id("text").fill("Le chien mange.")
    page.keyboard.press("Enter")
    page.get_by_test_id("cancel").click()
    expect(page.get_by_test_id("alert")).to_contain_text("cancelled")
    expect(page.get_by_test_id("output-text")).to_have_text(answer)  # what was there is still there
    page.unroute("**/api/trace")
    page.get_by_test_id("text").press("Enter")  # the same text again
    expect(page.get_by_test_id("alert")).to_have_count(0)
    expect(page.get_by_test_id("output-text")).not_to_have_text(answer)
    wide.errors.clear()


def test_a_text_that_was_not_sent_is_kept(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    page.goto(f"{explorer.address}/#tab=alignment")
    expect(page.get_by_test_id("output-text")).to_be_visible()
    page.get_by_test_id("text").fill("Une phrase pas encore envoyée")
    page.get_by_test_id("tab-lab").click()
    page.get_by_test_id("tab-heads").click()
    expect(page.get_by_test_id("text")).to_have_value("Une phrase pas encore envoyée")
    page.get_by_test_id("tab-alignment").click()
    page.get_by_test_id("example").nth(1).click()  # another text replaces it
    expect(page.get_by_test_id("text")).to_have_value("La petite maison blanche est près de la mer.")
    assert (wide.errors, wide.blocked) == ([], [])


def test_long_words_and_long_texts(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    for view in ("arcs", "matrix"):
        page.goto("about:blank")
        page.goto(f"{explorer.address}/#tab=alignment&view={view}&text=Voici+{'abcdefghij' * 12}+ici")
        expect(page.get_by_test_id("weights")).to_be_visible()
        assert wide.fits()
        labels = page.locator(".axis-label").all_text_contents()
        assert max(map(len, labels)) < 40 and any(label.endswith("…") for label in labels)
        assert page.get_by_test_id("weights").bounding_box()["height"] < 900  # type: ignore[index]
    page.get_by_test_id("text").fill("Le chat noir dort dans la maison blanche. " * 8)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("too-long")).to_contain_text("in training no text had more than 64")
    page.get_by_test_id("all-rows").click()  # of the table beside the matrix
    expect(page.get_by_test_id("all-rows")).to_have_count(0)
    assert page.get_by_test_id("links").locator("tbody tr").count() > 20
    assert wide.fits() and (wide.errors, wide.blocked) == ([], [])
