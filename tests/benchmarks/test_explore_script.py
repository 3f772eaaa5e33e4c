"""benchmarks/explore.py runs and reports as promised; no timing here."""

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
        [sys.executable, "benchmarks/explore.py", "--quick"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert report.keys() >= {"date", "hardware", "versions", "command", "seconds", "packed_bytes", "summary"}
    assert report["command"] == "python benchmarks/explore.py --quick" and str(ROOT) not in last
    seconds = report["seconds"]
    assert [seconds[name]["times"] for name in ("address", "page", "model", "sentence")] == [1, 1, 1, 3]
    assert 0 < seconds["address"]["median"] <= seconds["page"]["median"] <= seconds["model"]["median"]
    assert all(one["worst"][0] >= one["median"] > 0 for one in seconds.values())
    assert report["summary"]["met"] is None  # so few prove nothing
    for name in seconds:
        assert sum(line.startswith(f"{name} ") for line in table) == 1
