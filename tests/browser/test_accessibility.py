"""No serious violation of the accessibility rules of axe in any tab, light and dark, on a desk and on a phone.

axe checks contrast, names, target sizes, what the keyboard reaches, and headings (WCAG 2.2 A and AA, best practices).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from ..repeats import by_default
from .test_state import TABS

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """async rules => {
    const chosen = rules.length === 1 ? {type: 'rule', values: rules} : {type: 'tag', values: rules}
    const found = await axe.run(document, {resultTypes: ['violations'], runOnly: chosen})
    return found.violations.map(one => [one.impact, one.id, one.nodes.length, one.nodes[0].html.slice(0, 200)])
}"""
# Tabs with something opened in them, besides the tabs as they open.
OPENED = {
    "alignment-matrix": "tab=alignment&view=matrix&more=1&pin=3.5",
    "alignment-arcs": "tab=alignment&more=1&pin=3.5",
    "zoom-head": "tab=zoom&level=1",
    "zoom-softmax": "tab=zoom&level=4",
    "heads-off": "tab=heads&off=cross.0.1&pin=1.1",
    "inside-number": "tab=inside&cell=self.weights:2",
    "decode-beam": "tab=decode&search=beam",
    "decode-sample": "tab=decode&search=sample",
    "lab-first-step": "tab=lab&step=1&cell=raw.0.0",
}
WIDTHS = (1440, 390)
VISITS = {
    "light": (dict.fromkeys(TABS), RULES, WIDTHS),
    "dark": (dict.fromkeys(TABS), ["color-contrast"], WIDTHS[:1]),  # all else is the same in the dark
    "light-opened": (OPENED, RULES, WIDTHS),
    "dark-opened": (OPENED, RULES, WIDTHS),
    "dark-complete": (dict.fromkeys(TABS), RULES, WIDTHS),
}


def violations(page: Page, rules: list[str]) -> list[Any]:
    return [one for one in page.evaluate(RUN, rules) if one[0] in ("serious", "critical")]


@pytest.mark.parametrize("visit", by_default({"light", "dark"}, VISITS))
def test_no_tab_has_a_serious_violation(browser: Browser, explorer: Any, visit: str) -> None:
    states, rules, widths = VISITS[visit]
    explorer.wait_for("fr-en")
    scheme: Any = visit.split("-")[0]
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    found = {}
    for name, state in states.items():
        page.set_viewport_size({"width": widths[0], "height": 900})
        page.goto("about:blank")
        page.goto(f"{explorer.address}/#{state or f'tab={name}'}", wait_until="networkidle")
        expect(page.locator("main h1").first).to_be_visible()
        page.evaluate(AXE)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 844})
            page.wait_for_timeout(60)  # for the layout to follow
            if serious := violations(page, rules):
                found[name, width] = serious
    context.close()
    assert found == {}
