"""The scenes of a lecture, with a picture each, as they are shown on slides."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from regard.errors import UsageError, unknown_name

# Code between backticks, an index after _ and an exponent after ^: c_i, s_(i−1), 10000^(2i/d).
MARKS = re.compile(r"`([^`]+)`|([_^])(?:\(([^()]+(?:\([^()]*\))?)\)|([A-Za-z0-9]+))")
SCENES = "static/scenes"


@dataclass(frozen=True)
class Slide:
    """A scene of the Lecture tab."""

    id: str
    tag: str
    title: str
    question: str
    choices: list[str]
    right: int
    reasons: list[str]
    answer: str
    notes: str
    minutes: int | None  # of the plan of a lecture
    scene: dict[str, Any]


@dataclass(frozen=True)
class Deck:
    """The slides of a lecture, or all scenes."""

    title: str
    subtitle: str
    slides: list[Slide]


def read_scene_file(name: str) -> Any:
    """Read a JSON file of the scenes that ship with the page."""
    return json.loads(files("regard.look.page").joinpath(SCENES, name).read_text("utf-8"))


def read_deck(lecture: str | None = None) -> Deck:
    """Return the slides of a lecture, L0 to L4, in the order of its plan, or of all scenes."""
    scenes = {scene["id"]: scene for scene in read_scene_file("index.json")}
    plans = {plan["id"]: plan for plan in read_scene_file("lectures.json")}
    if lecture is None:
        return Deck("Attention", f"{len(scenes)} scenes", [_slide(scene, None) for scene in scenes.values()])
    if lecture not in plans:
        raise UsageError(unknown_name("lecture", lecture, tuple(plans)))
    plan = plans[lecture]
    slides = [_slide(scenes[entry["id"]], entry["minutes"]) for entry in plan["scenes"]]
    minutes = sum(slide.minutes or 0 for slide in slides)
    return Deck(plan["title"], f"After {plan['id']}, {plan['by']}. {minutes} minutes", slides)


def _slide(scene: dict[str, Any], minutes: int | None) -> Slide:
    names = ("id", "tag", "title", "question", "choices", "right", "reasons", "answer")
    texts: dict[str, Any] = {name: scene[name] for name in names}
    return Slide(**texts, notes=scene.get("notes", ""), minutes=minutes, scene=scene)


def marked(text: str, *, plain: Callable[[str], str], style: Callable[[str, str], str]) -> str:
    """Return a text with its code, indices and exponents passed to `style` as ("code" | "_" | "^", content)."""
    parts, end = [], 0
    for match in MARKS.finditer(text):
        parts.append(plain(text[end : match.start()]))
        kind = match[2] or "code"
        parts.append(style(kind, match[1] or match[3] or match[4]))
        end = match.end()
    return "".join([*parts, plain(text[end:])])
