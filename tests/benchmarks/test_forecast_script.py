"""benchmarks/forecast.py runs and prints what benchmarks/README.md says; its verdicts can be no."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("forecast")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_quick_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "benchmarks/forecast.py", "--quick", "--device", "cpu", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "cells", "summary"}
    assert report["command"].startswith("python benchmarks/forecast.py --quick") and str(ROOT) not in last
    (cell,) = report["cells"]
    for what in ("memory", "seconds"):
        assert cell["forecast"][what] > 0 and cell["measured"][what] > 0
        assert cell["ratio"][what] == pytest.approx(cell["forecast"][what] / cell["measured"][what])
    assert sum(line.startswith("quick ") for line in table) == 1
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4
    assert report["summary"]["busy"] is busy is ("the times prove nothing" in done.stdout)
