"""Inside in a browser: every number of a block, and each opened into its arithmetic.

Elements: stack, layer, head, tokens, token (controls) · inside, box (data-box), box-ID (its numbers) · arithmetic
(data-result, data-terms), result · needs-model.
"""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page import expect_address
from playwright.sync_api import Page, expect

from ...repeats import by_default


def _load(path: Path) -> Any:
    """A module by its file: the folders of tests are no packages."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recomputing = _load(Path(__file__).parents[2] / "look" / "recomputing.py")
TYPED = "Les enfants mangent une pomme rouge."


@pytest.fixture
def page(wide: Any, explorer: Any) -> Any:
    def go(state: str = "") -> Page:
        wide.page.goto(f"{explorer.address}/#tab=inside{state}")
        expect(wide.page.get_by_test_id("inside")).to_be_visible()
        return wide.page

    yield go
    assert (wide.errors, wide.blocked) == ([], [])


def type_sentence(page: Page, change: Callable[[], Any]) -> dict[str, Any]:
    """What the page gets from the server after a change."""
    with page.expect_response("**/api/inside") as answer:
        change()
    found = answer.value.json()
    expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    return found


def describe_model(explorer: Any, name: str) -> dict[str, Any]:
    """Layers, heads and width of a served model."""
    return next(model for model in explorer.get("/api/models")["models"] if model["name"] == name)["about"]


def get_parameter(explorer: Any, model: str) -> Callable[[str], np.ndarray]:
    def get(name: str) -> np.ndarray:
        found = explorer.get(f"/api/parameters?model={model}&name={name}")
        return np.frombuffer(base64.b64decode(found["float32"]), "<f4").reshape(found["shape"])

    return get


def check_boxes(found: dict[str, Any], explorer: Any, model: str) -> None:
    boxes = {box["id"]: box for box in found["boxes"]}
    for box in found["boxes"]:
        wanted = recomputing.recompute(box, boxes, get_parameter(explorer, model))
        if wanted is not None:
            np.testing.assert_allclose(recomputing.numbers_of(box), wanted, atol=1e-4, err_msg=box["id"])


OPEN = """async cells => {
    const told = {};
    for (const [id, at] of cells) {
        const state = new URLSearchParams(location.hash.slice(1));
        state.set('cell', `${id}:${at}`);
        location.hash = state;
        let opened = null;
        while (!(opened = document.querySelector(`[data-box='${id}'] [data-testid=arithmetic]`))) {
            await new Promise(requestAnimationFrame);
        }
        told[id] = Number(opened.dataset.result);
    }
    return told;
}"""


def check_page(page: Page, found: dict[str, Any]) -> None:
    """One number of each box, opened: the page's own arithmetic gives what the model has."""
    middle = {box["id"]: int(np.prod(box["shape"])) // 2 for box in found["boxes"]}
    told = page.evaluate(OPEN, list(middle.items()))
    for box in found["boxes"]:
        wanted = recomputing.numbers_of(box).ravel()[middle[box["id"]]]
        np.testing.assert_allclose(told[box["id"]], wanted, atol=1e-4, err_msg=box["id"])


@pytest.mark.parametrize(
    ("model", "stack"),
    [
        ("lecture", "decoder"),
        pytest.param("fr-en", "encoder", marks=pytest.mark.slow),
        pytest.param("fr-en", "decoder", marks=pytest.mark.slow),
    ],
)
def test_boxes_follow_from_those_before_them(model: str, stack: str, page: Any, explorer: Any) -> None:
    """On a sentence typed here: the first block of the encoder, which begins with embeddings; the decoder's last.

    fr-en normalizes before each sublayer, `lecture` after it.
    """
    shown = page(f"&model={model}")
    about = describe_model(explorer, model)
    last = about["layers"][stack] - 1 if stack == "decoder" else 0
    shown.get_by_test_id("text").fill(TYPED)
    type_sentence(shown, lambda: shown.get_by_test_id("send").click())
    if stack == "decoder":
        type_sentence(shown, lambda: shown.get_by_test_id("stack").get_by_label("decoder").check())
        type_sentence(shown, lambda: shown.get_by_test_id("layer").select_option(str(last)))
    type_sentence(shown, lambda: shown.get_by_test_id("head").select_option(str(about["heads"] - 1)))
    found = type_sentence(shown, lambda: shown.get_by_test_id("token").nth(2).click())
    assert (found["stack"], found["token"], found["layer"], found["head"]) == (stack, 2, last, about["heads"] - 1)
    names = shown.get_by_test_id("box").evaluate_all("all => all.map(one => one.dataset.box)")
    assert sorted(names) == sorted(box["id"] for box in found["boxes"])
    check_boxes(found, explorer, model)
    check_page(shown, found)


def test_the_transformer_of_the_slides_is_shown_unless_another_model_is_picked(page: Any) -> None:
    shown = page()
    source = shown.get_by_test_id("source")
    expect(source.locator("option:checked")).to_have_text("lecture")
    source.select_option("fr-en")
    expect(source.locator("option:checked")).to_have_text("fr-en")
    expect_address(shown, "model=fr-en")


@pytest.mark.parametrize("model", by_default({"small-rnn"}, ["shakespeare", "small-rnn", "learned"]))
def test_other_kinds_of_models(model: str, page: Any, explorer: Any) -> None:
    """Sinusoidal and learned positions, no cross-attention, a recurrent decoder."""
    shown = page(f"&model={model}&text=a")
    shown.get_by_test_id("text").fill("Once upon")
    found = type_sentence(shown, lambda: shown.get_by_test_id("send").click())
    check_boxes(found, explorer, model)
    check_page(shown, found)


def test_pointer_reads_and_a_click_opens(page: Any, explorer: Any) -> None:
    shown = page("&model=fr-en")
    width = describe_model(explorer, "fr-en")["width"]
    card = shown.locator("[data-box='token']")
    columns = min(64, width)
    canvas = card.locator("canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    place = {"x": 5.5 * box["width"] / columns, "y": 0.5 * box["height"] / -(-width // columns)}
    canvas.hover(position=place)
    expect(card.locator(".readout")).to_contain_text("this token[5] = ")
    canvas.click(position=place)
    expect(card.get_by_test_id("arithmetic")).to_contain_text("this token[5] = entry 5 of row 0")
    weights = shown.get_by_test_id("box-self.weights").locator("button")
    weights.first.click()
    expect(shown.locator("[data-box='self.weights']").get_by_test_id("arithmetic")).to_contain_text("exp(")


def test_long_sum_names_its_largest_terms(page: Any, explorer: Any) -> None:
    shown = page("&model=fr-en&cell=self.q:3")
    opened = shown.get_by_test_id("arithmetic")
    expect(opened).to_be_visible()
    width = describe_model(explorer, "fr-en")["width"]
    assert int(opened.get_attribute("data-terms") or "0") == width + 1  # the bias is one too
    assert opened.locator(".term").count() == 6
    expect(opened).to_contain_text(f"… {width + 1 - 6} more")
    result = opened.get_by_test_id("result").inner_text().replace("−", "-")
    assert float(result) == pytest.approx(float(opened.get_attribute("data-result") or "nan"), abs=6e-4)


def test_keys_read_and_open_numbers(page: Any) -> None:
    shown = page()
    strip = shown.locator("[data-box='token'] .strip")
    strip.focus()
    shown.keyboard.press("ArrowRight")
    expect(shown.locator("[data-box='token'] .readout")).to_contain_text("this token[1] = ")
    shown.keyboard.press("Enter")
    expect(shown.locator("[data-box='token']").get_by_test_id("arithmetic")).to_be_visible()
    expect_address(shown, "cell=token%3A1")
    shown.keyboard.press("Escape")
    expect(shown.get_by_test_id("arithmetic")).to_have_count(0)


def test_what_cannot_be_looked_into_says_why(wide: Any, explorer: Any) -> None:
    wide.page.goto(f"{explorer.address}/#tab=inside&model=no-attention")
    expect(wide.page.get_by_test_id("note")).to_contain_text("no attention")
    assert (wide.errors, wide.blocked) == ([], [])
