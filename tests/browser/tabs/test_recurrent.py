"""Recurrent in a browser: the numbers of the library, the diagram's sums, and the one vector of an encoder-decoder.

Elements: recurrent-units (a matrix), recurrent-letters, recurrent-curves-i, recurrent-curves-c, recurrent-sums,
recurrent-equations, recurrent-cell, recurrent-next, recurrent-gradients, recurrent-reach, one-vector-output,
one-vector-strip.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from page import expect_address, expect_address_without
from playwright.sync_api import Page, expect

TEXT = "ROMEO: I love thee"


@pytest.fixture
def recurrent(wide: Any, explorer: Any) -> Any:
    """Opens Recurrent with a state."""

    def go(state: str = "") -> Page:
        wide.page.goto(f"{explorer.address}/#tab=recurrent{state}")
        expect(wide.page.get_by_test_id("recurrent-units-canvas")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", line.replace("−", "-"))]


def values(page: Page, table: str) -> list[float]:
    cells = page.get_by_test_id(f"{table}-table").locator("td")
    return cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")


def test_gates_of_a_unit_are_those_of_the_library(recurrent: Any) -> None:
    import regard

    states = regard.look.recurrent_states(regard.load("shakespeare-lstm", device="cpu"), TEXT)
    page = recurrent(f"&line={TEXT}&unit=7&step=5")
    columns = {name: numbers[:, 7].tolist() for name, numbers in states.layers[0].values.items()}
    assert values(page, "recurrent-curves-i") == pytest.approx(columns["i"] + columns["f"] + columns["o"], abs=1e-5)
    assert values(page, "recurrent-curves-c") == pytest.approx(columns["c"] + columns["h"] + columns["g"], abs=1e-5)
    expect(page.get_by_test_id("recurrent-letters").locator("[aria-current]")).to_have_text("O")
    first = page.get_by_test_id("recurrent-next").locator("li").first
    expect(first).to_contain_text(states.predictions[5][0][0])
    expect(first).to_contain_text(f"{100 * states.predictions[5][0][1]:.1f} %")


def test_C1_the_diagram_does_the_sum(recurrent: Any) -> None:
    """c' = f c + i g and h' = o tanh(c'), with the numbers on the page."""
    page = recurrent(f"&line={TEXT}&unit=7&step=5")
    cell, hidden = page.get_by_test_id("recurrent-sums").locator("li").all_inner_texts()
    f, c, i, g, after = numbers(cell)
    assert f * c + i * g == pytest.approx(after, abs=2e-3)
    o, inside, h = numbers(hidden)
    assert inside == pytest.approx(after, abs=1e-3) and o * math.tanh(inside) == pytest.approx(h, abs=2e-3)
    page.get_by_test_id("recurrent-cell").get_by_label("GRU").check()
    expect(page.get_by_test_id("recurrent-sums")).to_have_count(0)  # the model has no such cells
    expect(page.get_by_test_id("recurrent-equations")).to_contain_text("h′ = (1 − z) n + z h")


def test_a_model_with_gru_cells_fills_the_other_diagram(recurrent: Any) -> None:
    page = recurrent("&net=demo-rnn-seq2seq&unit=3&step=2")
    (line,) = page.get_by_test_id("recurrent-sums").locator("li").all_inner_texts()
    one, z, n, z_again, before, after = numbers(line)
    assert one == 1 and z == z_again
    assert (1 - z) * n + z * before == pytest.approx(after, abs=2e-3)
    expect(page.get_by_test_id("recurrent-next")).to_have_count(0)  # a translator predicts nothing while it reads


def test_a_click_on_a_letter_selects_its_step_and_the_text_can_be_changed(recurrent: Any) -> None:
    page = recurrent()
    page.get_by_test_id("recurrent-letters").locator("button").nth(3).click()
    expect_address(page, "step=3")
    page.get_by_test_id("recurrent-text").fill("Enter JULIET")
    page.get_by_test_id("recurrent-send").click()
    expect(page.get_by_test_id("recurrent-letters").locator("button")).to_have_count(13)
    expect_address(page, "line=Enter")
    expect_address_without(page, "step=")


def test_C3_gradients_vanish_in_the_plain_net(recurrent: Any) -> None:
    page = recurrent()
    curves = values(page, "recurrent-gradients")
    assert len(curves) == 5 * 80
    attention, rnn, lstm, biased, exploding = curves[79::80]  # log10 of the norm at the largest distance
    assert rnn < -20 < lstm < -12 < biased < -3 and abs(attention) < 2 and exploding > 1
    reach = values(page, "recurrent-reach")  # the last token first
    note = page.locator("figure", has=page.get_by_test_id("recurrent-reach")).locator(".note")
    expect(note).to_contain_text(f"It is largest at distance {reach.index(max(reach))}, for “")
    assert reach[0] > reach[-1]
    assert page.locator(".top").evaluate("e => e.offsetHeight") < 60  # the header has one line on a desk
    plot = page.get_by_test_id("recurrent-gradients").locator("svg")
    strokes = plot.locator(".curve").evaluate_all("all => all.map(c => c.getAttribute('stroke'))")
    assert len(set(strokes)) == 5
    names = plot.locator(".curve-name")
    assert names.evaluate_all("all => all.map(n => n.getAttribute('fill'))") == strokes
    page.set_viewport_size({"width": 390, "height": 844})
    expect(plot).to_have_attribute("width", re.compile(r"^3\d\d$"))
    inside = "all => all.every(n => n.getBoundingClientRect().left > n.ownerSVGElement.getBoundingClientRect().left)"
    assert names.evaluate_all(inside)
    page.set_viewport_size({"width": 1280, "height": 900})


def test_C4_one_vector_is_as_long_for_every_sentence(recurrent: Any) -> None:
    import regard

    page = recurrent("&coder=demo-rnn-seq2seq&mine=Il faisait froid.")
    expect(page.get_by_test_id("one-vector-output")).to_have_count(5)
    sizes = (
        page.get_by_test_id("one-vector-strip")
        .locator("canvas")
        .evaluate_all("all => all.map(c => [c.width, c.height])")
    )
    assert sizes == [[56, 4]] * 5  # 224 numbers
    translator = regard.load("demo-rnn-seq2seq", device="cpu")
    expected = translator.translate("Il faisait froid.", beam=1).text
    expect(page.get_by_test_id("one-vector-output").last).to_have_text(expected)


def test_an_empty_text_is_refused_with_a_message(wide: Any, explorer: Any) -> None:
    page = wide.page
    page.goto(f"{explorer.address}/#tab=recurrent&line=%20")
    expect(page.get_by_test_id("alert")).to_contain_text("the text is empty")
    wide.errors.clear()  # the refusal itself
