"""The first screen: the sentence, its translation and the picture at once, examples, and the tour.

Elements: invitation, start-tour, no-tour · tour, tour-next, tour-back, end-tour · examples, example, notice · more,
options · text, output-text, weights, weights-arc, waiting.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from page import expect_address
from playwright.sync_api import Browser, Page, expect

import regard
from regard.look import Trace, merge_words, trace_text

SOURCES = Path(__file__).parents[3] / "web" / "src"
EXAMPLES = json.loads((SOURCES / "tabs" / "alignment" / "examples.json").read_text("utf-8"))
SIZES = ({"width": 1280, "height": 720}, {"width": 390, "height": 844})
WORDS_A_MINUTE = 150  # read aloud, and slowly

BOXES = """() => Object.fromEntries(['text', 'send', 'output-text', 'weights-canvas', 'invitation'].map(name => {
    const one = document.querySelector(`[data-testid=${name}]`) ?? document.querySelector('.arcs svg')
    const box = one.getBoundingClientRect()
    return [name, [box.left, box.top, box.right, box.bottom]]
}))"""


def overlap(a: list[float], b: list[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_sentence_translation_and_picture_need_no_scrolling(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    for size in SIZES:
        page.set_viewport_size(size)
        page.goto("about:blank")
        page.goto(explorer.address)
        expect(page.get_by_test_id("weights-row-word").first).to_be_visible()
        expect(page.locator(".intro p")).to_contain_text("Above is what the model reads, below what it writes")
        boxes = page.evaluate(BOXES)
        for name, (left, top, right, bottom) in boxes.items():
            assert left >= 0 and top >= 0 and right <= size["width"] and bottom <= size["height"], (name, size)
        names = list(boxes)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        assert not [pair for pair in pairs if overlap(boxes[pair[0]], boxes[pair[1]])]
        assert page.evaluate("scrollY") == 0 and wide.fits()
        expect(page.get_by_test_id("head")).to_have_count(0)  # all other controls are behind "More"
    page.get_by_test_id("more").click()
    expect(page.get_by_test_id("head")).to_be_visible()
    expect_address(page, "more=1")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert (wide.errors, wide.blocked) == ([], [])


ANIMATIONS = """names => names.map(name => [...document.querySelectorAll(name)].map(one => {
    const style = getComputedStyle(one)
    return [style.animationName, parseFloat(style.animationDelay)]
}))"""


def test_arcs_draw_themselves_word_by_word(browser: Browser, explorer: Any) -> None:
    for motion in ("no-preference", "reduce"):
        context = browser.new_context(reduced_motion=motion)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(explorer.address)
        expect(page.get_by_test_id("weights-arc").first).to_be_attached()
        arcs, words = page.evaluate(ANIMATIONS, [".arc", ".row-word"])
        if motion == "reduce":
            assert {name for name, _ in arcs + words} == {"none"}
        else:
            assert {name for name, _ in arcs} == {"draw-arc"}
            delays = [delay for _, delay in words]
            assert delays == sorted(delays) and 0.1 <= delays[1] - delays[0] <= 0.3
            assert {delay for _, delay in arcs} == set(delays)  # an arc comes with its word
        context.close()


def test_the_page_is_alive_before_the_model_answers(browser: Browser, explorer: Any) -> None:
    """A recorded trace is there within a second; it is replaced when the model answers."""
    context = browser.new_context()
    page = context.new_page()
    held: list[Any] = []
    page.route("**/api/trace", lambda route: held.append(route))
    times = []
    for _ in range(3):  # the first load compiles the script, and other tests use the machine
        held.clear()
        page.goto("about:blank")
        page.goto(explorer.address)
        expect(page.get_by_test_id("weights-arc").first).to_be_attached()
        times.append(page.evaluate("performance.now()"))
        expect(page.get_by_test_id("waiting")).to_contain_text("Recorded earlier")
        expect(page.get_by_test_id("output-text")).to_have_text("Mary bought a red car")
    assert min(times) < 1000, times
    held[-1].continue_()
    expect(page.get_by_test_id("waiting")).to_have_count(0)
    expect(page.get_by_test_id("output-text")).to_have_text("Mary bought a red car")
    context.close()


def test_a_click_on_an_example_shows_it_with_what_to_notice(wide: Any, explorer: Any) -> None:
    page: Page = wide.page
    page.goto(explorer.address)
    buttons = page.get_by_test_id("example")
    expect(buttons).to_have_count(len(EXAMPLES["fr-en"]))
    assert len(EXAMPLES["fr-en"]) >= 6
    for i, example in enumerate(EXAMPLES["fr-en"]):
        buttons.nth(i).click()
        expect(page.get_by_test_id("output-text")).to_have_text(example["output"])
        expect(page.get_by_test_id("notice")).to_contain_text(example["notice"])
        expect(page.get_by_test_id("text")).to_have_value(example["text"])
        expect(buttons.nth(i)).to_have_attribute("aria-pressed", "true")
    page.get_by_test_id("text").fill("Le chat dort.")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("notice")).to_have_count(0)
    assert (wide.errors, wide.blocked) == ([], [])


@pytest.mark.parametrize("name", ["fr-en", "en-fr"])
def test_what_the_examples_say_is_true(name: str) -> None:
    model = regard.load(name)
    for example in EXAMPLES[name]:
        trace = merge_words(trace_text(model, example["text"]))
        assert trace.output == example["output"]
        rows, columns = ([token.text for token in trace.axes[side].tokens] for side in ("target", "source"))
        assert trace.alignment is not None
        weights = trace.alignment.weights[0, 0]
        for written, read in example["links"]:
            assert columns[weights[rows.index(written)].argmax()] == read, (written, read)
        quoted = set(re.findall(r"“([^”]+)”", example["notice"])) & {*rows, *columns}
        assert quoted or example["title"] in ("I miss you",), example  # it speaks of words on the screen


def test_the_notices_with_a_claim_of_their_own() -> None:
    model = regard.load("fr-en")
    by_title = {example["title"]: example for example in EXAMPLES["fr-en"]}

    def aligned(title: str, words: bool = True) -> tuple[list[str], list[str], Any]:
        trace: Trace = trace_text(model, by_title[title]["text"])
        trace = merge_words(trace) if words else trace
        assert trace.alignment is not None
        rows, columns = ([token.text for token in trace.axes[side].tokens] for side in ("target", "source"))
        return rows, columns, trace.alignment.weights[0, 0]

    rows, columns, weights = aligned("Never")
    assert weights[rows.index("never"), columns.index("jamais")] > 0.5  # most of its weight
    rows, columns, _ = aligned("A new word", words=False)
    assert len({token for token in rows if token.startswith("<0x")} & set(columns)) == 1  # one token on both sides
    rows, columns, weights = aligned("Long")
    assert len(columns) - 1 == 16 and (weights[:, -1] > 0.05).mean() > 0.5  # words; weight of most words on </s>


def test_the_tour_is_offered_once_short_and_can_be_left(browser: Browser, explorer: Any) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(explorer.address)
    expect(page.get_by_test_id("invitation")).to_be_visible()
    expect(page.get_by_test_id("tour")).to_have_count(0)  # nobody is forced
    page.get_by_test_id("start-tour").click()
    read = ""
    stops = int(page.get_by_test_id("tour").locator("p").first.inner_text().split()[-1])
    for stop in range(stops):
        expect(page.get_by_test_id("tour")).to_contain_text(f"{stop + 1} of {stops}")
        read += page.get_by_test_id("tour").inner_text() + " "
        expect(page.locator(".tour-frame")).to_be_visible()  # every stop points at something
        expect(page.get_by_test_id("tour-next")).to_be_focused()
        page.keyboard.press("Enter")
    assert len(read.split()) / WORDS_A_MINUTE < 2
    expect(page.get_by_test_id("tour")).to_have_count(0)
    page.goto("about:blank")
    page.goto(explorer.address)
    expect(page.get_by_test_id("weights").first).to_be_visible()
    expect(page.get_by_test_id("invitation")).to_have_count(0)  # remembered
    page.get_by_test_id("help").click()
    page.get_by_test_id("tour-again").click()
    expect(page.get_by_test_id("tour")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("tour")).to_have_count(0)
    context.close()
