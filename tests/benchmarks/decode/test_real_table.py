"""The table of benchmarks/decode/decode_real.py: what it says, and that the pages show the stored results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "decode" / "2026-11-19-decode-real-cpu.json"


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("real_table")


def test_the_pages_agree_with_the_results(script: ModuleType) -> None:
    table = script.make_table(json.loads(RESULTS.read_text(encoding="utf-8")))
    for page in script.PAGES:
        assert f"<!-- table: decode-real -->\n{table}<!-- end of table -->" in page.read_text(encoding="utf-8"), (
            f"run `python benchmarks/decode/decode_real.py --table benchmarks/results/decode/{RESULTS.name}`"
        )


def test_reports_of_one_machine_are_joined(script: ModuleType, tmp_path: Path) -> None:
    """Cells of batches with fewer sentences, the file with all; the table says so."""
    whole = json.loads(RESULTS.read_text(encoding="utf-8"))
    paths = [tmp_path / "file.json", tmp_path / "batches.json"]
    for path, is_file in zip(paths, (True, False), strict=True):
        cells = [cell for cell in whole["cells"] if (cell["batch"] == script.FILE) == is_file]
        part = {**whole, "cells": cells, "sentences": 2000 if is_file else 320, "command": path.stem}
        path.write_text(json.dumps(part), encoding="utf-8")
    joined = script.join_reports(paths[::-1])
    assert joined["summary"] == whole["summary"] and joined["commands"] == ["batches", "file"]
    assert joined["cells"] == whole["cells"]
    assert "2000 sentences (in batches the first 320)" in script.make_table(joined)
    other = json.loads(paths[1].read_text(encoding="utf-8"))
    paths[1].write_text(json.dumps({**other, "busy": True}), encoding="utf-8")
    with pytest.raises(SystemExit, match="differ in busy"):
        script.join_reports(paths)
