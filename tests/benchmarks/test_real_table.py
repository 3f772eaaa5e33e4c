"""The table of benchmarks/decode_real.py: what it says, and that the pages show the stored results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-18-decode-real-cpu.json"


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("real_table")


def test_the_pages_agree_with_the_results(script: ModuleType) -> None:
    table = script.make_table(json.loads(RESULTS.read_text(encoding="utf-8")))
    for page in script.PAGES:
        assert f"<!-- table: decode-real -->\n{table}<!-- end of table -->" in page.read_text(encoding="utf-8"), (
            f"run `python benchmarks/decode_real.py --table benchmarks/results/{RESULTS.name}`"
        )


def test_a_row_has_the_numbers_of_its_cell(script: ModuleType) -> None:
    cell = {"threads": 1, "batch": 0, "beam": 4, "cpu_ratio": 1.5, "wall_ratio": 1.25}
    report = {
        "hardware": {"cpu": "a CPU", "cores": 2, "load": 0.5},
        "versions": {"ctranslate2": "4.8"},
        "sentences": 3,
        "words": 2.5,
        "date": "2026-11-18T00:00:00",
        "summary": {"met": 1, "cells": 2, "target": 1.3},
        "fp32_texts": [{"beam": 4, "texts": 3, "same": 2, "bleu": {"regard": 40.0, "CTranslate2": 39.5}}],
        "cells": [
            {"form": "int8", **cell, "cpu_ms": {"regard": 2.0, "CTranslate2": 3.0}},
            {"form": "fp32", **cell, "cpu_ms": {"regard": 4.0, "CTranslate2": 6.0, "transformers": 20.0}},
        ],
    }
    table = script.make_table(report)
    assert "| file, 4 | 2.0 | 3.0 | 1.50 | 1.25 | 4.0 | 6.0 | 1.50 | 1.25 | 20.0 |" in table
    assert "fp32, beam 4: 2 of 3 texts are the same; BLEU 40.00 and 39.50." in table
