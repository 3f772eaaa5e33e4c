"""The demo corpus: French and English sentences made by the project's own grammar, with gold word alignments.

Endless and free of licences; the grammar lies in demo_grammar/. E9: the running example of the lectures is held out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from regard.demo.grammar.sentences import Sentence, draw_sketch
from regard.demo.grammar.stories import tell_story
from regard.demo.grammar.surface import split_words
from regard.errors import UsageError, unknown_name

Part = Literal["train", "validation", "test"]
PARTS = ("train", "validation", "test")

# "Jane visite l'Afrique en septembre" is what a model trained here is asked to translate, so it is in no part,
# not even inside a longer sentence.
HELD_OUT = "jane visits africa in september"


@dataclass(frozen=True)
class DemoPair:
    """A French sentence, its English translation, and which words belong together (words as in `demo_words`)."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]
    phenomena: frozenset[str]


def demo_pairs(part: Part, count: int, *, seed: int = 0) -> list[DemoPair]:
    """`count` distinct pairs of a part. The parts share no French and no English sentence, whatever the seeds."""
    if part not in PARTS:
        raise UsageError(unknown_name("part of the demo corpus", part, PARTS))
    if count < 0:
        raise UsageError(f"the number of demo pairs cannot be negative, but {count} was given")
    pairs: list[DemoPair] = []
    for sentence in _draw(part, seed):
        if len(pairs) == count:
            break
        pairs.append(DemoPair(sentence.french, sentence.english, sentence.alignment, sentence.phenomena))
    return pairs


def _draw(part: str, seed: int) -> Iterator[Sentence]:
    random = Random(f"{part} {seed}")
    seen: set[str] = set()
    while True:
        sketch = draw_sketch(random)
        sentence = sketch.finish() if part_of(sketch.english) == part else None
        if sentence is not None and sentence.french not in seen:
            seen.add(sentence.french)
            yield sentence


def part_of(english: str) -> str | None:
    """The part that a sentence is in, by a hash of its English words: 6/8 train, 1/8 validation, 1/8 test.

    The English, because two French sentences may mean the same (tu and vous); a French one has one translation.
    """
    words = english.replace(".", "").replace(",", "").replace("?", "").lower()
    if HELD_OUT in words:
        return None
    first = hashlib.sha256(words.encode()).digest()[0] % 8
    return "test" if first == 0 else "validation" if first == 1 else "train"


def demo_words(text: str) -> list[str]:
    """The words of the alignments: split at spaces, after apostrophes and around punctuation (l' Afrique)."""
    return split_words(text)


def demo_text(characters: int, *, seed: int = 0) -> str:
    """English prose of exactly so many characters, for language models: little stories, a blank line between them."""
    if characters < 0:
        raise UsageError(f"the number of characters cannot be negative, but {characters} was given")
    random = Random(f"text {seed}")
    stories: list[str] = []
    length = 0
    while length < characters:
        stories.append(tell_story(random) + "\n\n\n")
        length += len(stories[-1])
    return "".join(stories)[:characters]


def write_demo(folder: Path, *, train: int, validation: int, test: int, seed: int = 0) -> None:
    """The corpus as files: train.fr, train.en, …, test.align (pairs "0-0 1-2" a line) and text.txt."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counts: dict[Part, int] = {"train": train, "validation": validation, "test": test}
    for part, count in counts.items():
        pairs = demo_pairs(part, count, seed=seed)
        _write_lines(folder / f"{part}.fr", [pair.source for pair in pairs])
        _write_lines(folder / f"{part}.en", [pair.target for pair in pairs])
        if part == "test":
            _write_lines(folder / "test.align", [" ".join(f"{i}-{j}" for i, j in p.alignment) for p in pairs])
    (folder / "text.txt").write_text(demo_text(100_000, seed=seed), encoding="utf-8", newline="\n")


def _write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
