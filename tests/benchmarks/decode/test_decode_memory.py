"""benchmarks/decode/decode_memory.py runs and reports as promised, and judges as it says; no measuring here."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("decode_memory")


@pytest.mark.slow
@pytest.mark.slow  # it starts a process for each size
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
@pytest.mark.timeout(120)
def test_quick_run_prints_a_table_and_a_last_line_of_json(
    run_script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without transformers, whose import alone takes seconds."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "transformers" else found(name))
    table, report = run_script("decode_memory", "--quick", "--out", str(tmp_path / "out.json"))
    assert report == json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert report.keys() >= {"date", "hardware", "versions", "command", "cells", "summary"}
    assert report["command"].startswith("python benchmarks/decode/decode_memory.py --quick")
    assert [(cell["who"], cell["lines"]) for cell in report["cells"]] == [("regard", n) for n in (0, 100, 300)]
    peaks = [cell["peak_bytes"] for cell in report["cells"]]
    assert 2**26 < peaks[0] < min(peaks[1:])
    assert report["summary"]["below"] is None and sum(line.startswith("regard ") for line in table) == 3


@pytest.mark.slow
def test_transformers_writes_a_line_for_each(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = script.write_lines(tmp_path / "lines.txt", ["le chat dort", "", "Jane visite l'Afrique"], 5)
    assert file.read_text(encoding="utf-8").splitlines()[3:] == ["le chat dort", ""]
    monkeypatch.setattr(script, "TOGETHER", 2)
    script.translate_by_transformers("fr-en", str(file))
    assert capsys.readouterr().out.count("\n") == 5
