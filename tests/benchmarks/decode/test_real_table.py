"""The table of benchmarks/decode/decode_real.py: what it says, and that the pages show the stored results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "decode" / "2026-11-18-decode-real-cpu.json"


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("real_table")


def test_the_pages_agree_with_the_results(script: ModuleType) -> None:
    table = script.make_table(json.loads(RESULTS.read_text(encoding="utf-8")))
    for page in script.PAGES:
        assert f"<!-- table: decode-real -->\n{table}<!-- end of table -->" in page.read_text(encoding="utf-8"), (
            f"run `python benchmarks/decode/decode_real.py --table benchmarks/results/decode/{RESULTS.name}`"
        )
