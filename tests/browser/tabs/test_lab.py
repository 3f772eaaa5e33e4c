"""The Lab in a browser: the numbers of the lectures, every cell's arithmetic, and the same results as the server's.

Elements: lab-q-0-0 … (cells to edit), lab-raw-0-0, lab-scaled-…, lab-masked-…, lab-weights-…, lab-out-… (cells that
were computed; data-value has all digits), lab-sum-0, lab-explain, lab-flaw, lab-step, lab-next, lab-back, lab-play.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from page import expect_address, expect_address_without
from page_arithmetic import attention_stages
from playwright.sync_api import Page, expect

from ...repeats import some

STAGES = ("raw", "scaled", "masked", "weights", "out")


@pytest.fixture
def lab(wide: Any, explorer: Any) -> Any:
    """Opens the Lab with a state."""

    def go(state: str = "") -> Page:
        wide.page.goto(f"{explorer.address}/#tab=lab{state}")
        expect(wide.page.get_by_test_id("lab-raw")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def cells(page: Page, stage: str) -> list[list[str]]:
    rows = page.get_by_test_id(f"lab-{stage}").locator("tbody tr")
    return [row.locator("button").all_inner_texts() for row in rows.all()]


def test_key_value_preset_is_the_lectures(lab: Any) -> None:
    """D6, unscaled; with 1/sqrt(3) the first row is another."""
    page = lab()
    assert cells(page, "raw") == [["3", "−3", "1"], ["−7", "−1", "11"]]
    assert cells(page, "weights") == [["0.879", "0.002", "0.119"], ["0.000", "0.000", "1.000"]]
    assert cells(page, "out")[0] == ["1.762", "3.229", "0.998"]
    page.get_by_test_id("lab-score").get_by_label("scaled").check()
    assert cells(page, "weights")[0] == ["0.743", "0.023", "0.234"]
    expect_address(page, "score=scaled")


def test_presets_of_further_scenes_show_the_numbers_of_their_answers(lab: Any) -> None:
    """D4: 4 · 3/√18 and 4 · 2/√24 before the softmax. D11: each head finds its word. D3: the sums of tanh."""
    assert cells(lab("&preset=search"), "weights") == [["0.703", "0.213", "0.042", "0.042"]]
    what, when, who = cells(lab("&preset=heads"), "weights")
    assert (what[1], when[4], who[0]) == ("0.941", "0.902", "0.947")
    assert cells(lab("&preset=d6&score=additive"), "weights")[0][0] == "0.108"


def test_masked_preset_hatches_the_barred_cell(lab: Any) -> None:
    """D10: 2, 2, −∞ gives a half, a half, nothing."""
    page = lab("&preset=masked")
    assert cells(page, "masked") == [["2", "2", "−∞"]]
    assert cells(page, "weights") == [["0.500", "0.500", "0.000"]]
    barred = page.get_by_test_id("lab-masked-0-2")
    assert "repeating-linear-gradient" in barred.evaluate("cell => getComputedStyle(cell).backgroundImage")
    assert "gradient" not in page.get_by_test_id("lab-masked-0-0").evaluate("c => getComputedStyle(c).backgroundImage")


@pytest.mark.parametrize(
    ("state", "cells"),
    some(
        [
            (
                "&score=scaled&mask=causal",
                {
                    "raw-0-0": ["2·2 + (−1)·1 + 0·(−1) = 3"],
                    "scaled-0-0": ["3 / √3 ≈ 1.732"],
                    "masked-0-2": ["masked: 0.577 becomes −∞"],
                },
            ),
            (
                "",
                {
                    "weights-0-0": ["e^3 / (e^3 + e^(−3) + e^1)", "20.086 / (20.086 + 0.05 + 2.718) ≈ 0.879"],
                    "out-0-0": ["0.879·2 + 0.002·2 + 0.119·0 ≈ 1.762"],
                },
            ),
            ("&preset=masked&score=general&w=0_1*1_0", {"raw-0-2": ["q W = (1, 1)", "1·3 + 1·1 = 4"]}),
            (
                "&preset=masked&score=additive",
                {"raw-0-1": ["(1, 1) + (2, 0) = (3, 1)", "1·0.995 + 1·0.762 ≈ 1.757"]},
            ),
        ],
        2,
    ),
)
def test_a_click_writes_the_arithmetic_out(lab: Any, state: str, cells: dict[str, list[str]]) -> None:
    page = lab(state)
    for cell, lines in cells.items():
        page.get_by_test_id(f"lab-{cell}").click()
        for line in lines:
            expect(page.get_by_test_id("lab-explain")).to_contain_text(line)
        page.keyboard.press("Escape")
        expect(page.get_by_test_id("lab-explain")).not_to_contain_text(lines[-1])


def test_what_a_cell_is_made_of_lights_up(lab: Any) -> None:
    page = lab("&cell=out.1.2")
    assert page.locator("td.lit").count() == 3 + 3
    assert page.get_by_test_id("lab-weights").locator("td.lit").count() == 3


def test_editing_a_key_changes_the_weights(lab: Any) -> None:
    page = lab()
    before = cells(page, "weights")
    page.get_by_test_id("lab-k-0-0").fill("-0.5")
    expect(page.get_by_test_id("lab-raw-0-0")).to_have_text("−2")
    assert cells(page, "weights") != before
    assert [page.get_by_test_id(f"lab-sum-{i}").inner_text() for i in range(2)] == ["1.000", "1.000"]
    page.get_by_test_id("lab-k-0-0").fill("2")
    expect(page.get_by_test_id("lab-raw-0-0")).to_have_text("3")
    expect_address_without(page, "k=")  # what is as in the lecture is left out


def test_what_is_no_number_is_flagged_and_the_last_result_stays(lab: Any) -> None:
    page = lab()
    before = cells(page, "weights")
    for text in ("two", "", "1/0", "NaN", "1e999", "<b>1</b>"):
        page.get_by_test_id("lab-k-0-1").fill(text)
        expect(page.get_by_test_id("lab-flaw")).to_contain_text("K, row 1, column 2")
        assert page.get_by_test_id("lab-k-0-1").get_attribute("aria-invalid") == "true"
        page.keyboard.press("Tab")
        assert cells(page, "weights") == before
        assert page.get_by_test_id("lab-k-0-1").input_value() == text
        page.get_by_test_id("lab-k-0-1").fill("1")
        expect(page.get_by_test_id("lab-flaw")).to_have_count(0)


def test_steps_lead_forward_and_back_and_the_url_follows(lab: Any) -> None:
    page = lab("&step=0")
    assert cells(page, "raw")[0] == ["·", "·", "·"]
    for done in range(1, 6):
        page.get_by_test_id("lab-next").click()
        expect(page.get_by_test_id("lab-step")).to_have_text(f"Step {done} of 5")
        shown = [set(cells(page, stage)[0]) != {"·"} for stage in STAGES]
        assert shown == [place < done for place in range(5)]
    assert page.get_by_test_id("lab-next").is_disabled()
    page.get_by_test_id("lab-back").click()
    page.get_by_test_id("lab-back").click()
    expect_address(page, "step=3")
    page.keyboard.press("ArrowRight")
    expect_address(page, "step=4")
    page.keyboard.press("ArrowLeft")
    page.reload()
    expect(page.get_by_test_id("lab-step")).to_have_text("Step 3 of 5")
    assert cells(page, "weights")[0] == ["·", "·", "·"]


def test_play_walks_by_itself_to_the_end(lab: Any) -> None:
    page = lab()
    page.clock.install()
    page.get_by_test_id("lab-play").click()
    expect(page.get_by_test_id("lab-step")).to_have_text("Step 0 of 5")
    page.clock.run_for(30_000)
    expect(page.get_by_test_id("lab-step")).to_have_text("Step 5 of 5")
    expect(page.get_by_test_id("lab-play")).to_have_text("Play")


def test_cells_of_the_mask_can_be_clicked(lab: Any) -> None:
    page = lab()
    page.get_by_test_id("lab-mask").get_by_label("click cells").check()
    page.get_by_test_id("lab-masked-0-0").click()
    assert cells(page, "masked")[0] == ["−∞", "−3", "1"]
    assert cells(page, "weights")[0] == ["0.000", "0.018", "0.982"]
    page.get_by_test_id("lab-masked-0-1").click()
    page.get_by_test_id("lab-masked-0-2").click()
    assert cells(page, "weights")[0] == ["0.000", "0.000", "0.000"]  # nothing to look at: zeros, never NaN
    page.get_by_test_id("lab-mask").get_by_label("causal").check()
    assert cells(page, "masked") == [["3", "−3", "−∞"], ["−7", "−1", "11"]]  # the last query sees every key


def test_sizes_can_be_changed(lab: Any) -> None:
    page = lab()
    page.get_by_text("Sizes").click()
    page.get_by_test_id("lab-n").fill("4")
    page.keyboard.press("Tab")
    assert cells(page, "raw") == [["3", "−3", "1", "0"], ["−7", "−1", "11", "0"]]
    page.get_by_test_id("lab-n").fill("99")
    page.keyboard.press("Tab")
    assert len(cells(page, "raw")[0]) == 8


def test_matrices_that_do_not_fit_are_explained(wide: Any, explorer: Any) -> None:
    wide.page.goto(f"{explorer.address}/#tab=lab&q=1_2*3_4")
    expect(wide.page.get_by_test_id("lab-misfit")).to_contain_text("2 numbers")
    expect(wide.page.get_by_test_id("lab-raw")).to_have_count(0)


# Shows each state on the page and returns all cells of all stages.
READ = """async states => {
    const read = stage => [...document.querySelectorAll(`[data-testid=lab-${stage}] button`)].map(
        cell => cell.hasAttribute('data-value') ? Number(cell.dataset.value) : null)
    const found = []
    for (const state of states) {
        location.hash = state
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))
        const stages = ['raw', 'scaled', 'masked', 'weights', 'out']
        found.push(Object.fromEntries(stages.map(stage => [stage, read(stage)])))
    }
    return found
}"""


def random_case(seed: int) -> tuple[str, dict[str, Any]]:
    """A state of the page, and the same as arguments of `attention_stages`."""
    draw = random.Random(seed)
    m, n, d, e = (draw.randint(1, 5) for _ in range(4))
    width = (
        d
        if (score := draw.choice(["dot", "scaled", "general", "additive"])) in ("dot", "scaled")
        else draw.randint(1, 5)
    )

    def matrix(rows: int, cols: int) -> list[list[float]]:
        return [[round(draw.uniform(-3, 3), draw.choice([0, 3, 12])) for _ in range(cols)] for _ in range(rows)]

    body: dict[str, Any] = {"q": matrix(m, width), "k": matrix(n, d), "v": matrix(n, e), "score": score, "scale": None}
    if score == "general":
        body["w"] = matrix(width, d)
    if score == "additive":
        body |= {"w": matrix(1, d), "wq": matrix(d, width), "wk": matrix(d, d)}
    body["mask"] = draw.choice([None, "causal", [[draw.random() < 0.7 for _ in range(n)] for _ in range(m)]])
    body["temperature"] = draw.choice([1, 0.3, 2.5])
    state = {
        key: "*".join("_".join(map(repr, row)) for row in body[key])
        for key in body
        if key in ("q", "k", "v", "w", "wq", "wk")
    }
    mask = body["mask"]
    if isinstance(mask, list):
        mask = "-".join("".join("1" if may else "0" for may in row) for row in mask)
    state |= {"score": score, "mask": mask or "none", "temperature": str(body["temperature"])}
    return "&".join(f"{key}={value}" for key, value in state.items()), body


def test_page_and_library_compute_the_same(lab: Any) -> None:
    """Random cases, all in float64 on both sides."""
    cases = [random_case(seed) for seed in range(42)]
    assert len({(body["score"], type(body["mask"])) for _, body in cases}) == 12  # every score with every kind of mask
    shown = lab().evaluate(READ, [f"tab=lab&{state}" for state, _ in cases])
    for seed, (stages, (_, body)) in enumerate(zip(shown, cases, strict=True)):
        wanted = attention_stages(**body)
        assert set(stages) == set(wanted) == set(STAGES)
        for name, seen in stages.items():
            assert [value is None for value in seen] == [value is None for value in wanted[name]], (seed, name)
            assert seen == pytest.approx(wanted[name], abs=1e-6), (seed, name)
