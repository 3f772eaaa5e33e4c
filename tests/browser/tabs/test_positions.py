"""Positions in a browser: the numbers of the lectures, and the same tables as the server's.

Elements: positions-map, positions-products (matrices, with -canvas, -readout, -table), positions-row, positions-column,
positions-distance, positions-variance (curves), positions-diagonal, positions-spread, positions-k, positions-share,
positions-total, positions-kind, positions-layout, positions-n, positions-d, positions-about, positions-odd.
"""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest
from page import expect_address
from page_arithmetic import position_tables
from playwright.sync_api import Page, expect


@pytest.fixture
def positions(wide: Any, explorer: Any) -> Any:
    """Opens Positions with a state."""

    def go(state: str = "") -> Page:
        wide.page.goto(f"{explorer.address}/#tab=positions{state}")
        expect(wide.page.get_by_test_id("positions-map-canvas")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def test_products_of_500_places(positions: Any) -> None:
    """B3: the diagonal is d/2 = 64, and each diagonal is one number."""
    page = positions("&preset=distance")
    assert page.get_by_test_id("positions-diagonal").inner_text() == "64.000"
    assert 0 <= float(page.get_by_test_id("positions-spread").inner_text().replace("−", "-")) < 1e-6


def test_variance_is_in_the_first_dimensions(positions: Any) -> None:
    """B4: 81% at k = 50; 95% is passed at k = 62 and not yet at k = 60; of 53.26 in all."""
    page = positions("&preset=distance")
    share = page.get_by_test_id("positions-share")
    assert page.get_by_test_id("positions-total").inner_text() == "53.26"
    assert share.inner_text() == "80.9%"
    page.get_by_test_id("positions-k-95").click()
    expect(page.get_by_test_id("positions-k")).to_have_value("62")
    expect(share).to_have_text("96.1%")
    page.get_by_test_id("positions-k").fill("60")
    expect(share).to_have_text("94.9%")
    expect_address(page, "k=60")


def test_heat_map_of_the_lecture(positions: Any) -> None:
    """B4: a sentence of 100 words, width 500; one pixel a number."""
    page = positions()
    size = "c => [c.width, c.height]"
    assert page.get_by_test_id("positions-map-canvas").evaluate(size) == [500, 100]
    assert page.get_by_test_id("positions-products-canvas").evaluate(size) == [100, 100]


def test_an_entry_is_opened_into_its_sine(positions: Any) -> None:
    page = positions("&preset=small&pin=3.4")
    value = math.sin(3 / 10000 ** (4 / 8))
    line = f"p(3, 4) = sin(3 / 10000^(4/8)) = sin(0.03) ≈ {value:.4f}"
    expect(page.get_by_test_id("positions-map-readout")).to_have_text(line)
    page.get_by_test_id("positions-kind").get_by_label("rotary").check()
    expect(page.get_by_test_id("positions-map-readout")).to_contain_text("cos(3 / 10000^(4/8)) = cos(0.03)")
    page.get_by_test_id("positions-layout").get_by_label("halves").check()
    expect(page.get_by_test_id("positions-map-readout")).to_contain_text("p(3, 4) = sin(3 / 10000^(0/8)) = sin(3)")


def test_a_click_shows_row_and_column_as_curves(positions: Any) -> None:
    page = positions("&preset=small")
    canvas = page.get_by_test_id("positions-map-canvas")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 5.5 / 8, "y": box["height"] * 7.5 / 10})
    expect_address(page, "pin=7.5")
    column = page.get_by_test_id("positions-column-table").locator("td")
    seen = column.evaluate_all("all => all.map(one => Number(one.dataset.value))")
    assert seen == pytest.approx([math.cos(t / 10000 ** (4 / 8)) for t in range(10)], abs=1e-12)
    row = page.get_by_test_id("positions-row-table").locator("td")
    assert len(row.all()) == 8
    expect(page.get_by_role("heading", name="Row 7")).to_be_visible()


def test_the_curve_over_the_distance_reads_out(positions: Any) -> None:
    page = positions("&preset=small")
    page.get_by_test_id("positions-distance").get_by_role("group").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("positions-distance-readout")).to_have_text("distance 0: 4.000")
    page.keyboard.press("ArrowRight")
    wanted = sum(math.cos(1 / 10000 ** (2 * i / 8)) for i in range(4))
    expect(page.get_by_test_id("positions-distance-readout")).to_have_text(f"distance 1: {wanted:.3f}")


def test_an_odd_width_loses_the_property_and_says_so(positions: Any) -> None:
    page = positions("&preset=small&n=100&d=3&base=100")
    expect(page.get_by_test_id("positions-odd")).to_contain_text("odd")
    assert float(page.get_by_test_id("positions-spread").inner_text()) > 0.5


def test_learned_positions_are_the_models(positions: Any, explorer: Any) -> None:
    """A loaded model has a table of 64 positions of width 16; the page shows that one."""
    explorer.wait_for("learned")
    page = positions("&kind=learned&n=20")
    expect(page.get_by_test_id("positions-about")).to_contain_text("the table of learned, 64 positions of width 16")
    assert page.get_by_test_id("positions-map-canvas").evaluate("c => [c.width, c.height]") == [16, 20]


def test_without_such_a_model_they_are_random_and_it_says_so(positions: Any, wide: Any) -> None:
    wide.page.route("**/api/models", lambda route: route.fulfill(json={"models": [], "traces": [], "limits": {}}))
    page = positions("&kind=learned&preset=small")
    expect(page.get_by_test_id("positions-about")).to_contain_text("random numbers from a fixed seed")
    first = page.get_by_test_id("positions-map-table").inner_text()
    page.reload()
    expect(page.get_by_test_id("positions-map-table")).to_have_text(re.compile(r"\d"))
    assert page.get_by_test_id("positions-map-table").inner_text() == first


# Shows each state on the page and returns every number of the tables.
READ = """async states => {
    const read = name => [...document.querySelectorAll(`[data-testid=positions-${name}-table] td[data-value]`)].map(
        cell => Number(cell.dataset.value))
    const found = []
    for (const state of states) {
        location.hash = state
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
        const names = {map: 'table', products: 'products', distance: 'curve', variance: 'variance'}
        found.push(Object.entries(names).map(([name, key]) => [key, read(name)]))
    }
    return found
}"""


def random_case(seed: int) -> tuple[str, dict[str, Any]]:
    """A state of the page, and the same as arguments of `position_tables`."""
    draw = random.Random(seed)
    body = {
        "length": draw.randint(2, 14),
        "dim": 2 * draw.randint(1, 12),
        "kind": draw.choice(["sinusoidal", "rotary"]),
        "layout": draw.choice(["interleaved", "halves"]),
        "base": draw.choice([100, 10000, 500000]),
    }
    state = f"kind={body['kind']}&layout={body['layout']}&n={body['length']}&d={body['dim']}&base={body['base']}"
    return f"tab=positions&{state}", body


def test_page_and_library_compute_the_same(positions: Any) -> None:
    """Random cases, all in float64 on both sides."""
    cases = [random_case(seed) for seed in range(16)]
    page = positions("&preset=small")
    shown = page.evaluate(READ, [state for state, _ in cases])
    for seed, (tables, (_, body)) in enumerate(zip(shown, cases, strict=True)):
        computed = position_tables(**body)
        for name, seen in tables:
            wanted = computed[name]
            if name == "variance":  # the page shows shares of the whole
                wanted = [value / wanted[-1] for value in wanted]
            assert seen == pytest.approx(wanted, abs=1e-6), (seed, name)
