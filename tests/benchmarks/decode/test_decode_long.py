"""benchmarks/decode/decode_long.py runs at a toy size; no timing here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "long.json"
    table, report = run_script("decode_long", "--quick", "--threads", "1", "--out", str(out))
    assert report == json.loads(out.read_text()) and report["tokens"] == 50
    for name, found in report["forms"].items():
        assert len(found["milliseconds"]) == 10 and min(found["milliseconds"]) > 0 and found["reading"] > 0
        assert any(line.startswith(name) for line in table)
