"""The lecture in a browser: next and back as clickers send them, predict, then reveal.

Elements: lecture-next, lecture-back, lecture-scene, lecture-place, lecture-question, lecture-choice-0 …,
lecture-reveal, lecture-verdict, lecture-answer, lecture-stage, lecture-plan,
lecture-clock, lecture-play, lecture-blank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from page import expect_address, expect_address_without
from playwright.sync_api import Page, expect

import regard

from ...repeats import some

SCENES = Path(regard.__file__).parent / "look" / "page" / "static" / "scenes"
INDEX: list[dict[str, Any]] = json.loads((SCENES / "index.json").read_text("utf-8"))
PLANS: list[dict[str, Any]] = json.loads((SCENES / "lectures.json").read_text("utf-8"))
PROJECTORS = ({"width": 1280, "height": 720}, {"width": 1920, "height": 1080})


def plain(text: str) -> str:
    """A text as the page shows it: code, indices and exponents are set without their marks."""
    text = re.sub(r"[_^](?:\(([^()]+(?:\([^()]*\))?)\)|([A-Za-z0-9]+))", lambda m: m[1] or m[2], text)
    return text.replace("`", "")


def number_of(name: str) -> int:
    return next(i for i, scene in enumerate(INDEX) if scene["id"] == name)


def open_scene(page: Page, number: int) -> None:
    page.get_by_test_id("lecture-scene").select_option(index=number)
    expect(page.get_by_test_id("lecture-question")).to_have_text(plain(INDEX[number]["question"]))


@pytest.fixture
def lecture(wide: Any, explorer: Any) -> Iterator[Page]:
    wide.page.goto(f"{explorer.address}/#tab=lecture")
    expect(wide.page.get_by_test_id("lecture-question")).to_have_text(plain(INDEX[0]["question"]))
    yield wide.page
    assert (wide.errors, wide.blocked) == ([], [])


def place(number: int) -> str:
    return f"{number} of {len(INDEX)}"


def test_buttons_lead_through_the_scenes(lecture: Page) -> None:
    assert lecture.get_by_test_id("lecture-back").is_disabled()
    lecture.get_by_test_id("lecture-next").click()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    expect(lecture.get_by_test_id("lecture-question")).to_have_text(plain(INDEX[1]["question"]))
    expect_address(lecture, f"scene={INDEX[1]['id']}")
    lecture.reload()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    lecture.get_by_test_id("lecture-back").click()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))


@pytest.mark.parametrize(("forward", "back"), some([("ArrowRight", "ArrowLeft"), ("PageDown", "PageUp")], 1))
def test_a_clicker_reveals_then_goes_on(lecture: Page, forward: str, back: str) -> None:
    lecture.keyboard.press(forward)
    expect(lecture.get_by_test_id("lecture-answer")).to_have_text(plain(INDEX[0]["answer"]))
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))
    expect_address_without(lecture, "step=")  # the Lab inside does not take the key as well
    lecture.keyboard.press(forward)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    expect(lecture.get_by_test_id("lecture-answer")).to_have_count(0)
    lecture.keyboard.press(back)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))


def test_a_guess_is_marked_with_the_reason(lecture: Page) -> None:
    """A wrong guess is marked with its reason only when the answer is shown; then other choices can be read."""
    scene = INDEX[0]
    assert lecture.get_by_text(plain(scene["answer"])).count() == 0
    wrong = next(i for i in range(len(scene["choices"])) if i != scene["right"])
    choice, right = (lecture.get_by_test_id(f"lecture-choice-{i}") for i in (wrong, scene["right"]))
    choice.click()
    assert choice.get_attribute("aria-pressed") == "true"
    assert choice.get_attribute("data-mark") is None and lecture.get_by_test_id("lecture-verdict").count() == 0
    expect_address(lecture, f"guess={wrong}")
    lecture.keyboard.press("ArrowRight")  # the focus is on the guess now, and the clicker still works
    expect(lecture.get_by_test_id("lecture-answer")).to_have_text(plain(scene["answer"]))
    assert (choice.get_attribute("data-mark"), right.get_attribute("data-mark")) == ("wrong", "right")
    expect(lecture.get_by_test_id("lecture-verdict")).to_contain_text(plain(scene["reasons"][wrong]))
    right.click()
    expect(lecture.get_by_test_id("lecture-verdict")).to_have_text("Right.")
    assert choice.get_attribute("data-mark") is None
    lecture.get_by_test_id("lecture-reveal").click()
    expect(lecture.get_by_test_id("lecture-answer")).to_have_count(0)
    assert right.get_attribute("data-mark") is None


def test_the_answer_moves_the_stage_one_step_on(lecture: Page) -> None:
    """D10: the softmax is computed with the answer; and the picture of D16 comes with its answer."""
    open_scene(lecture, number_of("d10"))
    weights = lecture.get_by_test_id("lab-box-weights")
    expect(weights).to_have_class(re.compile("pending"))
    assert weights.get_by_test_id("lab-weights-0-2").inner_text().strip() in ("", "·")
    lecture.keyboard.press("PageDown")
    expect(weights).not_to_have_class(re.compile("pending"))
    expect(lecture.get_by_test_id("lab-weights-0-2")).to_have_text("0.000")
    lecture.get_by_test_id("lecture-reveal").click()
    expect(weights).to_have_class(re.compile("pending"))
    open_scene(lecture, number_of("d16"))
    stage = lecture.get_by_test_id("lecture-stage")
    expect(stage.get_by_test_id("output-text")).to_be_visible()
    expect(stage.get_by_test_id("weights")).to_be_hidden()
    lecture.keyboard.press("PageDown")
    expect(stage.get_by_test_id("weights")).to_be_visible()
    lecture.get_by_test_id("lecture-play").click()  # the whole tab, with its controls
    expect(stage.get_by_test_id("view")).to_be_visible()


def test_space_goes_on_and_b_blanks_the_screen(lecture: Page) -> None:
    lecture.keyboard.press("Space")
    expect(lecture.get_by_test_id("lecture-answer")).to_be_visible()
    lecture.keyboard.press("b")
    blank = lecture.get_by_test_id("lecture-blank")
    expect(blank).to_be_visible()
    assert blank.bounding_box() == {"x": 0, "y": 0, "width": 1280, "height": 900}
    lecture.keyboard.press("PageDown")  # only brings the picture back
    expect(blank).to_have_count(0)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))
    lecture.keyboard.press("Space")
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    lecture.get_by_test_id("lecture-choice-0").focus()
    lecture.keyboard.press("Space")  # presses the button
    expect(lecture.get_by_test_id("lecture-choice-0")).to_have_attribute("aria-pressed", "true")
    expect(lecture.get_by_test_id("lecture-answer")).to_have_count(0)


def test_a_plan_leads_through_one_lecture(lecture: Page) -> None:
    plan = PLANS[0]
    minutes = [entry["minutes"] for entry in plan["scenes"]]
    titles = {scene["id"]: scene["title"] for scene in INDEX}
    lecture.get_by_test_id("lecture-plan").select_option(plan["id"])
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(f"1 of {len(minutes)}")
    expect(lecture.get_by_test_id("lecture-clock")).to_have_text(f"minute 0 to {minutes[0]} of {sum(minutes)}")
    lecture.get_by_test_id("lecture-next").click()
    second = f"minute {minutes[0]} to {minutes[0] + minutes[1]} of {sum(minutes)}"
    expect(lecture.get_by_test_id("lecture-clock")).to_have_text(second)
    expect_address(lecture, f"plan={plan['id']}", f"scene={plan['scenes'][1]['id']}")
    table = lecture.get_by_test_id("lecture-plan-table")
    table.locator("summary").click()
    assert table.locator("tbody button").all_inner_texts() == [titles[entry["id"]] for entry in plan["scenes"]]
    table.locator("tbody button").last.click()
    expect(lecture.get_by_test_id("lecture-next")).to_be_disabled()
    lecture.get_by_test_id("lecture-plan").select_option("")
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))


GEOMETRY = """async () => {
  const shapes = ".stage :is(figure, .panel, li.box, .lab-box, .lab-matrix, .output, .thumbnails)";
  const seen = (e) => e.getBoundingClientRect().height > 0 && !e.closest(".listen");
  const sides = ({ left, top, right, bottom }) => [left, top, right, bottom].map(Math.round);
  const edges = (e) => sides(e.getBoundingClientRect());
  const measure = () => ({
    words: edges(document.querySelector(".scene")),
    pictures: [...document.querySelectorAll(shapes)].filter(seen).map(edges),
    waits: document.querySelector("[data-testid=lecture-stage-waits]") !== null,
    busy: document.querySelector(".stage [data-testid=waiting], .stage [aria-busy=true]") !== null,
    page: [document.documentElement.scrollWidth, document.documentElement.scrollHeight],
  });
  let last = "", same = 0;
  for (let frame = 0; frame < 600; frame++) {  // until nothing has moved for some frames
    await new Promise(requestAnimationFrame);
    const now = measure(), text = JSON.stringify(now);
    same = text === last && !now.busy && (now.waits || now.pictures.length > 0) ? same + 1 : 0;
    if (same === 4) break;
    last = text;
  }
  return measure();
}"""


def expect_one_screen(page: Page, name: str, *, answered: bool) -> None:
    """Question and picture are side by side on the screen, whole, and the picture is large; nothing scrolls."""
    size = page.viewport_size
    assert size is not None
    width, height = size["width"], size["height"]
    seen = page.evaluate(GEOMETRY)
    where = f"{name} at {width} x {height}, {'with' if answered else 'before'} its answer: {seen}"
    assert seen["page"][0] <= width and seen["page"][1] <= height, where
    left, top, right, bottom = seen["words"]
    assert left >= 0 and top >= 0 and bottom <= height, where
    assert seen["waits"] != bool(seen["pictures"]) and not (answered and seen["waits"]), where
    for x, y, far, low in seen["pictures"]:
        assert x >= right and y >= 0 and far <= width + 1 and low <= height + 1, where
    if answered:
        wide = max(far for _, _, far, _ in seen["pictures"]) - min(x for x, *_ in seen["pictures"])
        high = max(low for *_, low in seen["pictures"]) - min(y for _, y, *_ in seen["pictures"])
        assert wide > 0.25 * width and high > 0.25 * height, where


def test_every_scene_fits_on_a_projector(lecture: Page) -> None:
    """On one 16:9 screen, without scrolling, before and after the answer."""
    try:
        lecture.set_viewport_size(PROJECTORS[0])
        lecture.keyboard.press("p")
        expect(lecture.get_by_test_id("lecture-leave")).to_be_visible()
        for number, scene in enumerate(INDEX):
            expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(number + 1))
            expect_one_screen(lecture, scene["id"], answered=False)
            lecture.keyboard.press("PageDown")
            expect(lecture.get_by_test_id("lecture-answer")).to_be_visible()
            for size in PROJECTORS:
                lecture.set_viewport_size(size)
                expect_one_screen(lecture, scene["id"], answered=True)
            lecture.set_viewport_size(PROJECTORS[0])
            lecture.keyboard.press("PageDown")
        lecture.get_by_test_id("lecture-leave").click()
        expect(lecture.get_by_test_id("tab-lab")).to_be_visible()
    finally:
        lecture.set_viewport_size({"width": 1280, "height": 900})


def test_measured_curves_come_with_the_answer(lecture: Page) -> None:
    """D17; and code in a note is shown as code."""
    number, scene = next((i, scene) for i, scene in enumerate(INDEX) if "curves" in scene)
    open_scene(lecture, number)
    assert lecture.get_by_test_id("scene-curves").count() == 0
    lecture.get_by_test_id("lecture-reveal").click()
    curves = lecture.get_by_test_id("scene-curves")
    expect(curves).to_be_visible()
    cells = curves.get_by_test_id("scene-curves-table").locator("td").all()
    shown = [float(cell.get_attribute("data-value") or "nan") for cell in cells]
    assert shown == [value for system in scene["curves"]["systems"] for value in system["bleu"]]
    note = lecture.locator(".scene .note")
    expect(note).to_have_text(plain(scene["notes"]))
    assert note.locator("code").all_inner_texts() == scene["notes"].split("`")[1::2]


def test_what_is_changed_on_stage_is_in_the_url_and_the_next_scene_is_clean(lecture: Page) -> None:
    number = number_of("d6")
    open_scene(lecture, number)
    stage = lecture.get_by_test_id("lecture-stage")
    stage.get_by_test_id("lab-q-0-0").fill("5")
    expect(stage.get_by_test_id("lab-q-0-0")).to_have_value("5")
    expect_address(lecture, "q=5")
    lecture.reload()
    expect(stage.get_by_test_id("lab-q-0-0")).to_have_value("5")
    other = number + 1 if number + 1 < len(INDEX) else number - 1
    lecture.get_by_test_id("lecture-scene").select_option(index=other)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(other + 1))
    expect_address_without(lecture, "q=5")


def test_a_scene_leaves_nothing_behind_in_the_tabs(lecture: Page) -> None:
    number = next(
        i for i, scene in enumerate(INDEX) if "tab=lab" in scene["state"] and "preset=d6" not in scene["state"]
    )
    lecture.get_by_test_id("lecture-scene").select_option(index=number)
    expect(lecture.get_by_test_id("lecture-stage").get_by_test_id("lab-q")).to_be_visible()
    lecture.get_by_test_id("tab-lab").click()
    expect(lecture.get_by_test_id("lab-preset")).to_have_value("d6")


def test_presenter_mode_has_large_type(lecture: Page) -> None:
    size = "() => parseFloat(getComputedStyle(document.documentElement).fontSize)"
    before = lecture.evaluate(size)
    lecture.get_by_test_id("tab-positions").click()
    lecture.keyboard.press("p")
    expect(lecture.get_by_test_id("presenter")).to_have_attribute("aria-pressed", "true")
    assert lecture.evaluate(size) > 1.3 * before
    expect_address(lecture, "presenter=1")
    lecture.keyboard.press("p")
    assert lecture.evaluate(size) == before


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_every_scene_is_shown(lecture: Page, explorer: Any, every: int) -> None:
    """Each with its tab; a scene with a trace shows it without asking a model."""
    explorer.wait_for("fr-en")
    asked: list[str] = []
    lecture.on("request", lambda request: asked.append(request.url) if "/api/trace" in request.url else None)
    tabs = [parse_qs(scene["state"])["tab"][0] for scene in INDEX]
    for number, (scene, inner) in enumerate(zip(INDEX, tabs, strict=True)):
        if number % every and inner in tabs[:number]:
            continue  # each tab is shown in every run
        open_scene(lecture, number)
        lecture.keyboard.press("PageDown")
        stage = lecture.get_by_test_id("lecture-stage")
        expect(stage.locator(":is(figure, canvas):visible").first, scene["id"]).to_be_visible()
        assert stage.get_by_role("alert").count() == 0, scene["id"]
        if scene["trace"] and inner != "inside":
            assert asked == [], scene["id"]
        asked.clear()


def test_scenes_fit_together() -> None:
    """The index is sound: every scene has what the page shows, and its files are there."""
    assert len({scene["id"] for scene in INDEX}) == len(INDEX)
    for scene in INDEX:
        assert all(scene[key] for key in ("id", "tag", "title", "question", "answer", "state", "show")), scene["id"]
        assert scene["trace"] is None or (SCENES / scene["trace"]).is_file(), scene["id"]
