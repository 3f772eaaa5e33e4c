"""benchmarks/check.py runs and reports as promised; no timing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quick_run_prints_a_table_and_a_last_line_of_json() -> None:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "benchmarks/check.py", "--quick"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert report.keys() >= {"date", "hardware", "versions", "command", "imports", "cells", "summary"}
    assert report["command"] == "python benchmarks/check.py --quick" and str(ROOT) not in last
    assert [cell["pairs"] for cell in report["cells"]] == [500, 1000]
    for cell in report["cells"]:
        assert cell["processor_seconds"] > 0 and cell["peak_bytes"] > 2**25 and cell["short_processor_seconds"] >= 0
    assert report["summary"]["met"] is None  # small sizes prove nothing
    assert sum(line.lstrip().startswith(("500 ", "1,000 ")) for line in table) == 2
