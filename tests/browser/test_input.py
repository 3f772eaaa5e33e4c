"""Images and series in a browser: the page's weights are those of the server, by mouse, keyboard, file and saved page.

Elements: tab-input, input-model, input-file, input-picture, input-attention (pictures), input-queries, input-readout,
input-scores, input-head-button, input-plot, input-weights, input-at, input-error, input-variable.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import numpy as np
from page import expect_address, expect_address_without
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from regard.look import InputTrace, write_page
from regard.look.trace.attention_map import Map
from regard.look.trace.inputs.input_trace import InputMap, Place, Ruler
from regard.look.trace.inputs.places import cell_places, span_places
from regard.look.trace.trace import Model


def traced(explorer: Any, model: str, example: str, **query: Any) -> InputTrace:
    """The trace that the server gives for an example."""
    path = f"api/input?model={model}&example={quote(example)}" + "".join(f"&{key}={n}" for key, n in query.items())
    with urlopen(Request(f"{explorer.address}/{path}", b"", method="POST"), timeout=60) as answer:
        return InputTrace.from_dict(json.load(answer))


def centre(picture: Locator, row: int, column: int) -> dict[str, Any]:
    """The middle of a patch of a picture with 4 x 4 of them."""
    box = picture.locator("canvas").bounding_box()
    assert box is not None
    return {"x": box["width"] * (column + 0.5) / 4, "y": box["height"] * (row + 0.5) / 4}


def says(page: Page, query: str, key: str, weight: float) -> None:
    expect(page.get_by_test_id("input-readout")).to_have_text(f"“{query}” attends to “{key}” with weight {weight:.4f}")


def test_images_and_series(wide: Any, explorer: Any, tmp_path: Path) -> None:
    page: Page = wide.page
    page.goto(f"{explorer.address}/#tab=input&net=small-pictures&example=disc+2")
    trace = traced(explorer, "small-pictures", "disc 2")
    weights = trace.maps[0].attention.weights  # [2, 2, 17, 17]; query and key 0 are the class token
    bars = page.get_by_test_id("input-scores").locator("li")
    expect(bars.first).to_contain_text(trace.scores[0].text)
    shown = bars.evaluate_all("all => all.map(one => Number(one.dataset.p))")
    assert np.allclose(shown, [score.probability for score in trace.scores], rtol=1e-6)

    # The class token is the query until a patch is pointed at; a head is chosen by its picture.
    attention, picture = page.get_by_test_id("input-attention"), page.get_by_test_id("input-picture")
    attention.locator("canvas").hover(position=centre(attention, 2, 1))
    says(page, "class token", "row 2, column 1", weights.mean((0, 1))[0, 10])
    page.get_by_test_id("input-head-button").nth(3).click()
    expect_address(page, "layer=1&head=1")
    attention.locator("canvas").hover(position=centre(attention, 2, 1))
    says(page, "class token", "row 2, column 1", weights[1, 1, 0, 10])
    picture.locator("canvas").click(position=centre(picture, 0, 3))
    expect_address(page, "query=4")
    attention.focus()
    page.keyboard.press("ArrowDown")  # the first patch, then the one below it
    page.keyboard.press("ArrowDown")
    says(page, "row 0, column 3", "row 1, column 0", weights[1, 1, 4, 5])
    picture.focus()
    page.keyboard.press("Escape")
    expect_address_without(page, "query")
    page.get_by_test_id("input-queries").get_by_text("mean of all").click()
    attention.locator("canvas").hover(position=centre(attention, 0, 0))
    says(page, "the mean of all queries", "row 0, column 0", weights[1, 1, :, 1].mean())

    # The saved page shows the same without the server.
    with page.expect_download() as saved:
        page.get_by_test_id("save-page").click()
    saved.value.save_as(tmp_path / "saved.html")
    before = page.get_by_test_id("input-scores").text_content()
    page.goto((tmp_path / "saved.html").as_uri())
    expect(page.get_by_test_id("input-scores")).to_have_text(before or "")
    attention.locator("canvas").hover(position=centre(attention, 0, 0))
    says(page, "the mean of all queries", "row 0, column 0", weights[1, 1, :, 1].mean())

    # A file of one's own: one that is no image gets a sentence, and the page goes on.
    page.goto(f"{explorer.address}/#tab=input&net=small-pictures")
    expect(bars).to_have_count(7)
    wide.errors.clear()
    broken = {"name": "<b>.png", "mimeType": "image/png", "buffer": b"no image"}
    page.get_by_test_id("input-file").set_input_files(files=[broken])
    expect(page.get_by_test_id("alert")).to_contain_text("<b>.png: not an image")
    assert len(wide.errors) == 2 and all("400" in error for error in wide.errors)  # the console's, and the response
    wide.errors.clear()
    content = io.BytesIO()
    Image.fromarray(np.full((40, 60), 200, np.uint8)).save(content, "PNG")
    page.get_by_test_id("input-file").set_input_files(
        files=[{"name": "grey.png", "mimeType": "image/png", "buffer": content.getvalue()}]
    )
    expect(page.get_by_test_id("alert")).to_have_count(0)
    expect(picture.locator("canvas")).to_have_attribute("aria-label", re.compile(r"grey\.png"))

    # A series: the query is the nearest patch, the forecast moves with the slider.
    page.get_by_test_id("input-model").select_option("small-lines")
    expect(page.get_by_test_id("input-error")).to_contain_text("Mean absolute error of the 12 forecast rows")
    page.get_by_test_id("input-at").fill("1000")
    trace = traced(explorer, "small-lines", "demo series", at=1000)
    page.get_by_test_id("input-variable").get_by_label("heat").check()
    expect(page.get_by_test_id("input-at").locator("xpath=..")).to_contain_text(trace.columns.labels[48][:10])
    page.get_by_test_id("input-plot").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect_address(page, "query=2")
    page.get_by_test_id("input-weights").focus()
    page.keyboard.press("ArrowRight")
    says(page, "patch 2: 960 to 967", "patch 0: 952 to 959", trace.maps[1].attention.weights.mean((0, 1))[2, 0])
    continuation = trace.continuation
    assert continuation is not None and continuation.truth is not None
    error = abs(continuation.values[1] - continuation.truth[1]).mean()
    expect(page.get_by_test_id("input-error").locator("b")).to_have_text(f"{error:#.3g}")
    assert (wide.errors, wide.blocked) == ([], [(tmp_path / "saved.html").as_uri()])


def test_recorded_sound_and_video(wide: Any, tmp_path: Path) -> None:
    """Tokens as queries, moments and cells of frames as keys, in a page that was written from Python."""
    dice = np.random.default_rng(1)
    model, tokens = Model("m", "recorded", {}, 1, {}), (Place("one"), Place("two"), Place("end"))
    shares = dice.dirichlet(np.ones(5), size=(1, 2, 3)).astype(np.float32)
    sound = InputTrace(
        model, "bands", dice.normal(size=(1, 8, 20, 1)),
        {"tokens": tokens, "moments": span_places(5, name="moment", size=4, stride=4, columns=20, rows=8)},
        (InputMap("tokens", Map("tokens", "moments", shares)),),
        Ruler("seconds", 0.0, 0.01), Ruler("mel band"), source="digits", output="one two",
    )  # fmt: skip
    cells = dice.dirichlet(np.ones(12), size=(1, 1, 3)).astype(np.float32)
    video = InputTrace(
        model, "pixels", dice.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8),
        {"words": tokens, "cells": cell_places((3, 2, 2), 8, 8)},
        (InputMap("words", Map("words", "cells", cells)),),
        Ruler("column"), Ruler("row"), source="scene", output="one two",
    )  # fmt: skip
    page: Page = wide.page
    page.goto(write_page(tmp_path / "recorded.html", [sound, video]).as_uri())
    expect(page.get_by_test_id("view-input").locator("h1")).to_have_text("Sound")
    expect(page.get_by_test_id("input-output")).to_have_text("one two")
    page.get_by_test_id("input-queries").get_by_text("two").click()
    page.get_by_test_id("input-weights").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    says(page, "two", "moment 2: 8 to 11", shares.mean((0, 1))[1, 2])
    page.get_by_test_id("input-model").select_option(label="trace: trace 2")
    expect(page.get_by_test_id("view-input").locator("h1")).to_have_text("Video")
    attention = page.get_by_test_id("input-attention").locator("canvas")
    expect(attention).to_have_count(3)
    attention.nth(2).hover(position={"x": 5, "y": 5})
    says(page, "one", "frame 2, row 0, column 0", cells[0, 0, 0, 8])
    page.get_by_test_id("tab-alignment").click()
    expect(page.get_by_test_id("alert")).to_contain_text("none of a text")
    assert wide.errors == []
