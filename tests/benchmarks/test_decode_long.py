"""benchmarks/decode_long.py runs at a toy size; no timing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quick_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "long.json"
    command = [sys.executable, "benchmarks/decode_long.py", "--quick", "--threads", "1", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert report == json.loads(out.read_text()) and report["tokens"] == 50
    for name, found in report["forms"].items():
        assert len(found["milliseconds"]) == 10 and min(found["milliseconds"]) > 0 and found["reading"] > 0
        assert any(line.startswith(name) for line in table)
