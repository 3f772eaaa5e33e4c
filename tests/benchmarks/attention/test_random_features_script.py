"""benchmarks/attention/random_features.py runs, compares what is equal and reports; no timing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_a_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    options = ["--device", "cpu", "--lengths", "9", "16", "--rounds", "2", "--out", str(out)]
    table, report = run_script("random_features", *options)
    assert json.loads(out.read_text(encoding="utf-8")) == report and report["copy_bytes_a_second"] > 0
    assert [(cell["work"], cell["L"]) for cell in report["cells"]] == [
        (work, L) for work in ("forward", "backward") for L in (9, 16)
    ]
    for cell in report["cells"]:
        assert {"regard 64", "regard 128", "regard 256", "sdpa"} <= cell["seconds"].keys()
        assert cell["best_sdpa"] == "sdpa" and cell["times_as_fast"]["sdpa"] > 0
        assert any(line.startswith(f"{cell['work']:8} {cell['L']:6}") for line in table)
        # performer-pytorch is either measured or said to be missing
        assert ("performer 128" in cell["seconds"]) != ("performer 128" in cell["does_not_run"])
