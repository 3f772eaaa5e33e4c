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


def test_targets_on_a_gpu(script: ModuleType) -> None:
    cells = [
        cell("forward", 2048, 0.4e-3, sdpa_flash=0.5e-3, sdpa_cudnn=0.6e-3, fla_128=1e-3),
        cell("backward", 4096, 2e-3, sdpa_flash=1.9e-3, performer_128=9e-3),
        cell("forward", 65536, 0.5e-3, sdpa_flash=20e-3, sdpa_cudnn=9e-3),
    ]
    found = script.summary(cells, "cuda", rate=4.3e12)
    assert {name: (round(target["found"], 2), target["met"]) for name, target in found.items()} == {
        "forward at 2048, times SDPA": (1.25, True),
        "forward and backward at 4096, times SDPA": (0.95, False),
        "forward at 65536, times SDPA": (18.0, False),  # the best backend counts
        "share of the byte floor, least": (0.25, False),  # 0.125 of 0.5 ms; at 2048 it is 0.31
        "times the others, least": (2.5, True),
    }


def test_targets_on_a_cpu(script: ModuleType) -> None:
    cells = [cell("forward", 2048, 1.0, sdpa=0.9), cell("forward", 32768, 1.0, sdpa=11.0)]
    found = script.summary(cells, "cpu", rate=1e10)
    assert [target["met"] for target in found.values()] == [False, True]
    assert script.summary([], "cpu", rate=1e10) == {}, "nothing measured is nothing proved"


def test_unequal_work_is_refused(script: ModuleType) -> None:
    torch = importlib.import_module("torch")
    y = torch.randn(100)
    script.check_same({"regard 128": y, "fla 128": y * 1.01})
    with pytest.raises(AssertionError, match=r"regard 128 and fla 128 do not compute the same thing: .* 5\.0%"):
        script.check_same({"regard 128": y, "fla 128": y * 1.05})
