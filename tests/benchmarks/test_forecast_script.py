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

from regard.training.recipe.toml_file import read_recipe

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


def test_all_cells_are_recipes(script: ModuleType) -> None:
    for device, cells in {**script.CELLS, "quick": script.QUICK}.items():
        for cell in cells.values():
            recipe = read_recipe("demo", script.changes_of(cell, "cpu" if device == "quick" else device))
            assert recipe.training.validate_every == recipe.training.save_every == (recipe.training.steps or 0) // 2
            assert recipe.training.samples == 0  # pictures need a library that a GPU's machine may lack


@pytest.mark.parametrize(
    ("memory", "seconds", "met"), [(1.2, 0.8, True), (1.3, 1.0, False), (1.0, 0.7, False), (1.25, 0.75, True)]
)
def test_verdicts(
    script: ModuleType, memory: float, seconds: float, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"memory": memory * 1000, "seconds": seconds * 8, "took": 1.0}
    monkeypatch.setattr(
        script, "in_a_child", lambda name, changes: told if name == "forecasted" else {"memory": 1000, "seconds": 8}
    )
    cell = script.compare("a", script.QUICK["quick"], "cpu")
    assert cell["met"] is met and cell["ratio"] == {"memory": pytest.approx(memory), "seconds": pytest.approx(seconds)}
    fine = {"ratio": {"memory": 1.001, "seconds": 0.999}, "met": True}
    assert script.summary([fine, cell])["met"] is met
    assert ("met" if met else "missed") in script.row(cell)


def test_the_worst_is_the_farthest_from_one(script: ModuleType) -> None:
    cells = [{"ratio": {"memory": ratio, "seconds": 2 - ratio}, "met": True} for ratio in (1.1, 0.8, 1.15)]
    assert script.summary(cells)["worst"] == {"memory": 0.8, "seconds": 1.2}
