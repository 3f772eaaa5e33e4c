"""The table of speech.py: the page shows the stored results, and strings know where their digits are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from regard.arrays.speech.recordings import make_recordings

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "uses" / "2026-11-18-speech-h200.json"


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("speech")


def test_the_page_agrees_with_the_results(script: ModuleType) -> None:
    table = script.table_of(json.loads(RESULTS.read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"<!-- table: speech -->\n{table}<!-- end of table -->" in page, (
        f"run `python benchmarks/uses/speech.py --table benchmarks/results/uses/{RESULTS.name}`"
    )


def test_strings_are_of_one_speaker_and_know_their_digits(script: ModuleType) -> None:
    names = [f"{digit}_{speaker}_0.wav" for speaker in ("ann", "bob") for digit in range(3)]
    audio = [np.full(800, (1 + i) / 10, np.float32) for i in range(6)]  # each with a value of its own
    singles = make_recordings(audio, [name[0] for name in names], 8000, name="x")
    object.__setattr__(singles, "names", names)
    strings, places = script.strings_of(singles, 8)
    for i, (sound, text, spans) in enumerate(zip(strings.audio, strings.texts, places, strict=True)):
        assert 3 <= len(text.split()) == len(spans) <= 7
        for digit, (start, end) in zip(text.split(), spans, strict=True):
            value = audio[int(digit) + 3 * (i % 2)][0]
            assert (sound[round(start * 8000) : round(end * 8000)] == value).all()


def test_the_test_part_is_not_read_to_tune(script: ModuleType, tmp_path: Path) -> None:
    for digit in range(2):
        for index in range(12):
            (tmp_path / f"{digit}_ann_{index}.wav").touch()

    def indices(tune: bool) -> list[set[int]]:
        tables = script.write_tables(tmp_path, tmp_path, None, tune)
        return [{script.parts_of(Path(line.split("\t")[0]))[2] for line in table.open()} for table in tables]

    assert indices(False) == [set(range(5, 12)), set(range(5))]
    assert indices(True) == [{10, 11}, set(range(5, 10))]
