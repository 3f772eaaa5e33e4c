"""benchmarks/data.py runs and reports as promised; no timing here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_quick_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    for side in ("fr", "en"):
        (tmp_path / side).write_text("".join(f"{side} sentence number {i} of some\n" for i in range(200)))
    files = ["--data", str(tmp_path / "fr"), str(tmp_path / "en")]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "benchmarks/data.py", "--quick", "--device", "cpu", *files, "--sizes", "demo", "--out", out],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert json.loads(out.read_text()) == report
    assert [cell["step"] for cell in report["cells"]] == ["steps of 5 ms", "steps of 20 ms", "model demo"]
    assert report["parts"]["pairs"] == 200
    assert report["parts"]["tokens_an_epoch"] > 200
    for cell in report["cells"]:
        assert 0 <= cell["waiting"] <= 1
        assert cell["met"] == (cell["waiting"] < 0.02)
        assert any(line.startswith(cell["step"]) for line in table)
    assert report["summary"]["worst_waiting"] == max(cell["waiting"] for cell in report["cells"])
