"""benchmarks/train/forecast.py runs and prints what benchmarks/README.md says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow  # a process for the forecast, and one for the training
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    table, report = run_script("forecast", "--quick", "--device", "cpu", "--out", str(out))
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "cells", "summary"}
    assert report["command"].startswith("python benchmarks/train/forecast.py --quick")
    (cell,) = report["cells"]
    for what in ("memory", "seconds"):
        assert cell["forecast"][what] > 0 and cell["measured"][what] > 0
        assert cell["ratio"][what] == pytest.approx(cell["forecast"][what] / cell["measured"][what])
    assert sum(line.startswith("quick ") for line in table) == 1
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4
    assert report["summary"]["busy"] is busy is any("the times prove nothing" in line for line in table)
