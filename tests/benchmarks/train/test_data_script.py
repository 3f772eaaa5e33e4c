"""benchmarks/train/data.py runs and reports as promised; no timing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    for side in ("fr", "en"):
        (tmp_path / side).write_text("".join(f"{side} sentence number {i} of some\n" for i in range(200)))
    files = ["--data", str(tmp_path / "fr"), str(tmp_path / "en")]
    table, report = run_script("data", "--quick", "--device", "cpu", *files, "--sizes", "demo", "--out", str(out))
    assert json.loads(out.read_text()) == report
    assert [cell["step"] for cell in report["cells"]] == ["steps of 5 ms", "steps of 20 ms", "model demo"]
    assert report["parts"]["pairs"] == 200
    assert report["parts"]["tokens_an_epoch"] > 200
    for cell in report["cells"]:
        assert 0 <= cell["waiting"] <= 1
        assert cell["met"] == (cell["waiting"] < 0.02)
        assert any(line.startswith(cell["step"]) for line in table)
    assert report["summary"]["worst_waiting"] == max(cell["waiting"] for cell in report["cells"])
