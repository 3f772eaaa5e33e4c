"""benchmarks/random_features.py runs, compares what is equal, judges by its targets and reports; no timing here."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("random_features")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_a_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    command = ["benchmarks/random_features.py", "--device", "cpu", "--lengths", "9", "16", "--rounds", "2"]
    done = subprocess.run(
        [sys.executable, *command, "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
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


def cell(work: str, L: int, ours: float, **others: float) -> dict:
    ratios = {name.replace("_", " "): seconds / ours for name, seconds in others.items()}
    best = min((name for name in ratios if name.startswith("sdpa")), key=ratios.__getitem__, default=None)
    return {
        "work": work, "L": L, "B": 65536 // L, "H": 16, "seconds": {"regard 128": ours}, "best_sdpa": best,
        "times_as_fast": ratios,
    }  # fmt: skip
