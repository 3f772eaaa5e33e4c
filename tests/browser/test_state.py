"""The page as a whole: every tab is clean, the URL holds the view, the keyboard reaches all of it, and it fits a phone.

Elements: tab-NAME (buttons), view-NAME (the open tab), share, presenter, scheme, help, help-dialog, toast.
"""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from ..repeats import by_default

TABS = (
    "input", "alignment", "zoom", "heads", "inside", "decode", "compare", "embeddings", "recurrent", "lab", "positions",
    "features", "lecture",
)  # fmt: skip


def settled(page: Page, explorer: Any, state: str) -> Page:
    """The page with this state, once nothing is asked any more."""
    explorer.wait_for("fr-en")
    page.goto("about:blank")
    page.goto(f"{explorer.address}/#{state}", wait_until="networkidle")
    expect(page.locator("main h1").first).to_be_visible()
    return page


def test_tabs_are_the_ones_of_the_list(wide: Any, explorer: Any) -> None:
    page = settled(wide.page, explorer, "")
    found = page.locator("nav button").evaluate_all("all => all.map(one => one.dataset.testid)")
    assert tuple(found) == tuple(f"tab-{tab}" for tab in TABS)
    expect(page.get_by_test_id("view-alignment")).to_be_visible()  # the front page, as the first model reads text


# The URL


VIEWS = {
    "lab": ("tab=lab&preset=jane&mask=causal&temperature=0.5&step=4&cell=weights.2.1", "lab-explain"),
    "positions": ("tab=positions&preset=small&kind=rotary&pin=3.4&pair=2.7", "positions-map-readout"),
    "features": ("tab=features&phi=positive&features=64&seed=3&normalize=1&pin=1.2", "features-corrected-readout"),
}


@pytest.mark.parametrize("name", by_default({"positions"}, VIEWS))
def test_a_shared_link_opens_the_same_view_elsewhere(wide: Any, explorer: Any, browser: Browser, name: str) -> None:
    state, read_out = VIEWS[name]
    page = settled(wide.page, explorer, state)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_test_id("share").click()
    expect(page.get_by_test_id("toast")).to_contain_text("clipboard")
    link = page.evaluate("navigator.clipboard.readText()")
    fresh = browser.new_context().new_page()
    fresh.goto(link)
    expect(fresh.get_by_test_id(read_out)).to_have_text(page.get_by_test_id(read_out).text_content() or "")
    assert fresh.locator("main").inner_text() == page.locator("main").inner_text()
    fresh.context.close()


def test_back_undoes_the_change_of_a_tab(wide: Any, explorer: Any) -> None:
    page = settled(wide.page, explorer, "tab=lab&cell=raw.0.0")
    page.get_by_test_id("tab-positions").click()
    expect(page.get_by_test_id("view-positions")).to_be_visible()
    page.go_back()
    expect(page.get_by_test_id("lab-explain")).to_contain_text("= 3")
    page.get_by_test_id("tab-positions").click()
    page.get_by_test_id("tab-lab").click()
    expect(page.get_by_test_id("lab-explain")).to_contain_text("= 3")  # as it was left


BROKEN = (
    "tab=nowhere",
    "tab=lab&q=abc",
    "tab=lab&cell=out.9.9",
    "tab=lab&preset=none&step=99",
    "tab=positions&n=1e9&pin=x.y",
    "tab=features&of=moon&phi=cosine&features=17&seed=-1.5&draw=x&pin=9.9",
    "%",
)


def test_a_broken_link_opens_something_sound(wide: Any, explorer: Any) -> None:
    for state in BROKEN:
        wide.page.goto("about:blank")
        wide.page.goto(f"{explorer.address}/#{state}")
        expect(wide.page.locator("main h1").first).to_be_visible()
        assert (wide.errors, wide.blocked) == ([], []), state


# Keyboard, colours, motion


REACH = """() => {
    const shown = one => one.checkVisibility({visibilityProperty: true}) && !one.closest('.listen, [inert]')
    const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
        .filter(one => shown(one) && !one.disabled && one.tabIndex >= 0 && one.type !== 'file')
    // Of the radio buttons of one group, Tab reaches the one that is chosen.
    const reachable = all.filter(one => one.type !== 'radio' || one.checked)
    for (const one of reachable) one.dataset.reached = '0'
    return reachable.length
}"""
# Marks every element that gets the focus, and collects those that do not look as if they had it.
WATCH_FOCUS = """() => {
    window.unmarked = []
    document.addEventListener('focusin', ({target}) => {
        const style = getComputedStyle(target.type === 'radio' ? target.nextElementSibling : target)
        target.dataset.reached = '1'
        if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) < 2) {
            unmarked.push(target.outerHTML.slice(0, 120))
        }
    })
}"""


NAMELESS = """() => {
    const named = one => one.getAttribute('aria-label') || one.labels?.length
    const all = [...document.querySelectorAll('canvas, input, select, textarea')].filter(one => !named(one))
    const buttons = [...document.querySelectorAll('button')].filter(one => one.checkVisibility() && !named(one))
    const silent = buttons.filter(one => !one.innerText.trim() && !one.querySelector('[aria-label]'))
    return [...all, ...silent].map(one => one.outerHTML.slice(0, 120))
}"""


def reach_all_by_keyboard(page: Page) -> None:
    wanted = page.evaluate(REACH)
    assert wanted > 15
    page.evaluate(WATCH_FOCUS)
    for _ in range(wanted + 20):
        page.keyboard.press("Tab")
    assert page.evaluate("unmarked") == []  # one sees where one is
    missed = page.locator("[data-reached='0']").evaluate_all("all => all.map(one => one.outerHTML.slice(0, 120))")
    assert missed == []


KEYBOARD = {"alignment", "decode", "lab", "recurrent"}  # hundreds of key presses; the other tabs are slow tests
CASES = [(tab, tab in KEYBOARD) for tab in TABS]
CASES += [pytest.param(tab, True, marks=pytest.mark.slow) for tab in TABS if tab not in KEYBOARD]


@pytest.mark.parametrize(("tab", "keyboard"), CASES)
def test_every_tab_is_clean_fits_a_phone_and_the_keyboard_reaches_all_of_it(
    wide: Any, explorer: Any, tab: str, keyboard: bool
) -> None:
    """Nothing is asked from elsewhere, everything has a name and can be reached, and one sees where one is."""
    page = settled(wide.page, explorer, f"tab={tab}")
    expect(page.get_by_test_id(f"view-{tab}")).to_be_visible()
    assert page.locator("figure, canvas, table").count() > 0
    assert page.locator("[role=alert]").count() == 0
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("[...document.scripts].map((one) => one.getAttribute('src'))") == ["app.js"]
    if keyboard:
        reach_all_by_keyboard(page)
    assert wide.sideways() == 0
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        assert wide.fits()
        page.locator("main h1").first.click()  # away from fields, where keys are letters
        page.keyboard.press("p")  # large type is the harder case
        expect(page.locator("html[data-presenter=true]")).to_be_attached()
        assert wide.fits()
    finally:
        page.set_viewport_size({"width": 1280, "height": 900})
    assert (wide.errors, wide.blocked) == ([], [])


def test_keys_open_help_and_tabs_but_not_while_one_types(wide: Any, explorer: Any) -> None:
    page = settled(wide.page, explorer, "tab=lab")
    page.keyboard.press("?")
    expect(page.get_by_test_id("help-dialog")).to_contain_text("presenter mode")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("help-dialog")).to_be_hidden()
    page.keyboard.press("9")
    expect(page.get_by_test_id("view-positions")).to_be_visible()
    page.keyboard.press("0")
    expect(page.get_by_test_id("view-features")).to_be_visible()
    page.keyboard.press("l")
    expect(page.get_by_test_id("view-lecture")).to_be_visible()
    page.keyboard.press("8")
    page.get_by_test_id("lab-q-0-0").fill("")
    page.keyboard.type("7")
    expect(page.get_by_test_id("view-lab")).to_be_visible()
    expect(page.get_by_test_id("lab-raw-0-0")).to_have_text("13")


LUMINANCE = """element => {
    const [r, g, b] = getComputedStyle(element).backgroundColor.match(/[\\d.]+/g).map(Number)
    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255
}"""
MOVING = """() => [...document.querySelectorAll('*')].filter(one => {
    const style = getComputedStyle(one)
    return style.animationName !== 'none' || style.transitionDuration.split(', ').some(time => parseFloat(time) > 0)
}).length"""
BRIGHTNESS = """name => {
    const probe = document.body.appendChild(document.createElement('span'))
    probe.style.color = `var(${name})`
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(c => c / 255)
    const [r, g, b] = parts.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
}"""


def find_low_contrast(page: Page) -> list[tuple[str, str]]:
    """Pairs below WCAG AA, 4.5 to 1: the ink, the quiet text and the accent on paper and sheet."""
    grounds = ("--paper", "--sheet", "--sunk")
    pairs = [(ink, ground) for ink in ("--ink", "--muted", "--accent") for ground in grounds]
    pairs += [("--bad", "--bad-soft"), ("--accent", "--accent-soft"), ("--accent-ink", "--accent")]
    low = []
    for ink, ground in pairs:
        dark, light = sorted(page.evaluate(BRIGHTNESS, name) for name in (ink, ground))
        if (light + 0.05) / (dark + 0.05) < 4.5:
            low.append((ink, ground))
    return low


@pytest.mark.parametrize("scheme", by_default({"dark"}, ["light", "dark"]))
def test_the_scheme_of_the_system_is_followed_readable_calm_and_can_be_switched(
    browser: Browser, explorer: Any, scheme: Any
) -> None:
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(f"{explorer.address}/#tab=lab")
    expect(page.get_by_test_id("lab-raw")).to_be_visible()
    assert page.evaluate(MOVING) == 0
    assert find_low_contrast(page) == []
    body = page.locator("body")
    before = body.evaluate(LUMINANCE)
    assert before > 0.8 if scheme == "light" else before < 0.2
    page.get_by_test_id("scheme").click()
    after = body.evaluate(LUMINANCE)
    assert after < 0.2 if scheme == "light" else after > 0.8
    page.reload()
    assert body.evaluate(LUMINANCE) == after  # this reader's choice is remembered
    context.close()
