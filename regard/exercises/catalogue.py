"""The list of all exercises, ordered by lecture topic and difficulty.

A new exercise is a file in topics/, its solution in solutions/, and a line here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.resources import files
from typing import NamedTuple

from regard.errors import UsageError, unknown_name
from regard.exercises.exercise import CodeExercise, Exercise, NumberExercise


class Topic(NamedTuple):
    """A lecture topic; `folder` is its name in topics/."""

    folder: str
    title: str


class Entry(NamedTuple):
    """An exercise in the list; level 1 is a first step, 2 the standard, 3 a challenge."""

    name: str
    level: int
    tags: tuple[str, ...]
    title: str
    topic: Topic

    @property
    def module(self) -> str:
        """Path of the exercise in topics/ and in solutions/, without suffix."""
        return f"{self.topic.folder}/{self.name.replace('-', '_')}"


TOPICS: dict[Topic, tuple[tuple[str, int, str, str], ...]] = {
    Topic("attention", "Attention"): (
        ("softmax-by-hand", 1, "D1 D10", "Compute a softmax by hand"),
        ("attention-by-hand", 1, "D6 D9", "Compute attention for one query by hand"),
        ("softmax", 1, "D1", "Write a softmax that does not overflow"),
        ("scaled-dot-product", 2, "D9", "Write scaled dot-product attention"),
        ("additive-score", 2, "D5 D14", "Write the additive score of Bahdanau"),
        ("cross-attention", 2, "D13", "Let a decoder attend to an encoder"),
        ("padding-mask", 2, "D10", "Write a padding mask"),
        ("causal-mask", 2, "D10", "Write a causal mask for the last queries"),
        ("split-heads", 2, "D11", "Split vectors into heads and merge them again"),
        ("masked-attention", 3, "D10", "Write attention with a mask"),
        ("multi-head", 3, "D11", "Write multi-head attention"),
        ("grouped-queries", 3, "D11", "Let several query heads share a key head"),
    ),
}

ENTRIES: dict[str, Entry] = {
    name: Entry(name, level, tuple(tags.split()), title, topic)
    for topic, rows in TOPICS.items()
    for name, level, tags, title in rows
}


def entry_of(name: str) -> Entry:
    """Return the entry of an exercise; UsageError if there is no exercise of this name."""
    if name not in ENTRIES:
        raise UsageError(f"{unknown_exercise(name)}; `regard exercise list` shows all {len(ENTRIES)}")
    return ENTRIES[name]


def unknown_exercise(name: str) -> str:
    """Return the message for an unknown name, with the most similar one."""
    return unknown_name("exercise", name, list(ENTRIES)).partition(" (known")[0]


def load_exercise(name: str) -> tuple[Entry, Exercise]:
    """Return an exercise and its entry; UsageError if there is no exercise of this name."""
    entry = entry_of(name)
    exercise = import_module(f"regard.exercises.topics.{entry.module.replace('/', '.')}").EXERCISE
    assert isinstance(exercise, (CodeExercise, NumberExercise))
    return entry, exercise


def solution(name: str) -> str:
    """Return the text of the solution of an exercise."""
    entry = entry_of(name)
    folder, _, stem = entry.module.partition("/")
    place = files("regard.exercises") / "solutions" / folder
    found = [file for file in place.iterdir() if file.name in (f"{stem}.py", f"{stem}.toml")]
    return found[0].read_text(encoding="utf-8")


def entries(topic: str | None = None, level: int | None = None, tag: str | None = None) -> Iterable[Entry]:
    """Return the exercises of a topic (by folder name), level and lecture tag, in order."""
    folders = [known.folder for known in TOPICS]
    if topic is not None and topic not in folders:
        raise UsageError(unknown_name("topic", topic, folders))
    return [
        entry
        for entry in ENTRIES.values()
        if topic in (None, entry.topic.folder) and level in (None, entry.level) and (tag is None or tag in entry.tags)
    ]
