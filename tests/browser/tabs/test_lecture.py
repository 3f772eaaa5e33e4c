"""The lecture in a browser: next and back as clickers send them, predict, then reveal.

Elements: lecture-next, lecture-back, lecture-scene, lecture-place, lecture-question, lecture-choice-0 …,
lecture-reveal, lecture-answer, lecture-stage.
"""

from __future__ import annotations

import json
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


@pytest.fixture
def lecture(wide: Any, explorer: Any) -> Iterator[Page]:
    wide.page.goto(f"{explorer.address}/#tab=lecture")
    expect(wide.page.get_by_test_id("lecture-question")).to_have_text(INDEX[0]["question"])
    yield wide.page
    assert (wide.errors, wide.blocked) == ([], [])


def place(number: int) -> str:
    return f"{number} of {len(INDEX)}"


def test_buttons_lead_through_the_scenes(lecture: Page) -> None:
    assert lecture.get_by_test_id("lecture-back").is_disabled()
    lecture.get_by_test_id("lecture-next").click()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    expect(lecture.get_by_test_id("lecture-question")).to_have_text(INDEX[1]["question"])
    expect_address(lecture, f"scene={INDEX[1]['id']}")
    lecture.reload()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    lecture.get_by_test_id("lecture-back").click()
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))


@pytest.mark.parametrize(("forward", "back"), some([("ArrowRight", "ArrowLeft"), ("PageDown", "PageUp")], 1))
def test_a_clicker_reveals_then_goes_on(lecture: Page, forward: str, back: str) -> None:
    lecture.keyboard.press(forward)
    expect(lecture.get_by_test_id("lecture-answer")).to_have_text(INDEX[0]["answer"])
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))
    expect_address_without(lecture, "step=")  # the Lab inside does not take the key as well
    lecture.keyboard.press(forward)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(2))
    expect(lecture.get_by_test_id("lecture-answer")).to_have_count(0)
    lecture.keyboard.press(back)
    expect(lecture.get_by_test_id("lecture-place")).to_have_text(place(1))


def test_one_guesses_before_the_answer_is_there(lecture: Page) -> None:
    number = next(i for i, scene in enumerate(INDEX) if scene.get("choices"))
    lecture.get_by_test_id("lecture-scene").select_option(index=number)
    expect(lecture.get_by_test_id("lecture-question")).to_have_text(INDEX[number]["question"])
    assert lecture.get_by_text(INDEX[number]["answer"]).count() == 0
    choice = lecture.get_by_test_id("lecture-choice-1")
    choice.click()
    assert choice.get_attribute("aria-pressed") == "true"
    expect_address(lecture, "guess=1")
    lecture.keyboard.press("ArrowRight")  # the focus is on the guess now, and the clicker still works
    expect(lecture.get_by_test_id("lecture-answer")).to_have_text(INDEX[number]["answer"])
    lecture.get_by_test_id("lecture-reveal").click()
    expect(lecture.get_by_test_id("lecture-answer")).to_have_count(0)


def test_measured_curves_come_with_the_answer(lecture: Page) -> None:
    """D17; and code in a note is shown as code."""
    number, scene = next((i, scene) for i, scene in enumerate(INDEX) if "curves" in scene)
    lecture.get_by_test_id("lecture-scene").select_option(index=number)
    expect(lecture.get_by_test_id("lecture-question")).to_have_text(scene["question"])
    assert lecture.get_by_test_id("scene-curves").count() == 0
    lecture.get_by_test_id("lecture-reveal").click()
    curves = lecture.get_by_test_id("scene-curves")
    expect(curves).to_be_visible()
    cells = curves.get_by_test_id("scene-curves-table").locator("td").all()
    shown = [float(cell.get_attribute("data-value") or "nan") for cell in cells]
    assert shown == [value for system in scene["curves"]["systems"] for value in system["bleu"]]
    note = lecture.locator(".scene .note")
    expect(note).to_have_text(scene["notes"].replace("`", ""))
    assert note.locator("code").all_inner_texts() == scene["notes"].split("`")[1::2]


def test_what_is_changed_on_stage_is_in_the_url_and_the_next_scene_is_clean(lecture: Page) -> None:
    number = next(i for i, scene in enumerate(INDEX) if "tab=lab" in scene["state"])
    lecture.get_by_test_id("lecture-scene").select_option(index=number)
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
        lecture.get_by_test_id("lecture-scene").select_option(index=number)
        expect(lecture.get_by_test_id("lecture-question")).to_have_text(scene["question"])
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
        assert all(scene[key] for key in ("id", "tag", "title", "question", "answer", "state")), scene["id"]
        assert scene["trace"] is None or (SCENES / scene["trace"]).is_file(), scene["id"]
