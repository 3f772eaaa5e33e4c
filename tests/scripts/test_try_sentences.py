"""scripts/try_sentences.py marks what is wrong, and nothing that is right."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("try_sentences", ROOT / "scripts/try_sentences.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_hundred_sentences_of_all_kinds(script: ModuleType) -> None:
    tries = script.read_tries(script.FILE)
    assert len(tries) >= 100 and len({one.text for one in tries}) == len(tries)
    assert len({one.about for one in tries}) > 12
    words = [len(one.text.split()) for one in tries]
    assert min(words) == 1 and sum(29 < count < 60 for count in words) >= 3 and max(words) >= 290
    assert any("😀" in one.keep for one in tries)


@pytest.mark.parametrize(
    ("source", "translation", "keep", "marks"),
    [
        ("Le chat dort.", "The cat sleeps.", "", []),
        ("Le chat dort.", " ", "", ["empty"]),
        ("Le chat dort.", "The cat is on the way to the house of my dear old aunt in town.", "", ["16 words for 3"]),
        ("a b c d e f g h i j k l m n o p q r s t", "It is.", "", ["2 words for 20"]),
        ("Il va à la mer.", "He goes to the sea sea sea.", "", ["the same words in a row, again and again"]),
        ("Il va à la mer ce soir", "to the sea or to the sea and to the sea", "", ["3 times: to the sea"]),
        ("non non non non", "no no no no", "", []),
        ("Il aime Anna.", "He loves <unk>.", "Anna", ["unknown mark", "lost: Anna"]),
        ("J'ai 37 ans 😀", "I'm 37 😀", "37 😀", []),
        ("J'ai 37 ans 😀", "I'm thirty", "37 😀", ["lost: 37, 😀"]),
    ],
)
def test_marks(script: ModuleType, source: str, translation: str, keep: str, marks: list[str]) -> None:
    assert list(script.warnings_for(script.Try(source, keep.split(), ""), translation)) == marks
