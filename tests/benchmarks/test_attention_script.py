"""benchmarks/attention.py runs, measures equal work, judges by its targets and reports as promised; no timing here."""

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
CELL_KEYS = {"subject", "work", "mask", "m", "n", "seconds", "forms", "ratios", "again", "rounds", "verdict", "ratio"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("attention")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def run(*arguments: str, hide: str = "") -> subprocess.CompletedProcess[str]:
    """Run the script as a user would; `hide` names a module that it shall not find."""
    start = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({hide.split()!r})); sys.path.insert(0, 'benchmarks'); "
        "runpy.run_path('benchmarks/attention.py', run_name='__main__')"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *(["-c", start] if hide else ["benchmarks/attention.py"]), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_quick_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    done = run("--quick", "--device", "cpu", "--sizes", "5", "--out", str(out))
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    report = json.loads(last)
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "cells", "summary"}
    assert report["hardware"]["cores"] == os.cpu_count() and report["setting"]["dtype"] == "float32"
    assert report["versions"].keys() == {"python", "torch", "regard", "x-transformers"}
    assert report["command"].startswith("python benchmarks/attention.py --quick") and str(ROOT) not in last

    cells = report["cells"]
    named = {(cell["subject"], cell["work"], cell["mask"], cell["m"], cell["n"]) for cell in cells}
    expected = {
        (subject, work, mask, 1 if work == "step" else n, n)
        for subject in ("attend", "multihead")
        for work in ("forward", "backward", "step")
        for mask in ("none", "causal", "padding")
        for n in (5,)
        if (work, mask) != ("step", "none")
    }
    assert named == expected and len(cells) == len(expected)
    for cell in cells:
        assert cell.keys() >= CELL_KEYS
        assert cell["rounds"] >= 2 and all(seconds > 0 for seconds in cell["seconds"].values())
        rival = "sdpa" if cell["subject"] == "attend" else "torch"
        assert {"regard", rival} <= cell["seconds"].keys()
        judged = cell["subject"] == "attend" or cell["work"] != "step" or report["versions"]["x-transformers"]
        assert cell["verdict"] in (("behind", "level", "ahead") if judged else ("not judged",))
    for subject in ("attend", "multihead"):
        found = report["summary"][subject]
        assert found["behind"] + found["level"] + found["ahead"] == found["cells"]
        rows = [line for line in table if line.startswith(f"{subject} ")]
        assert len(rows) == len(cells) // 2
    assert report["summary"]["noise"].keys() == {"median", "worst"}
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4
    assert report["summary"]["busy"] is busy is ("these numbers prove nothing" in done.stdout)


def test_it_runs_without_x_transformers_and_in_bfloat16() -> None:
    arguments = ("--quick", "--device", "cpu", "--sizes", "4", "--only", "multihead", "--dtype", "bfloat16")
    done = run(*arguments, hide="x_transformers")
    assert done.returncode == 0, done.stderr
    assert "x-transformers is not installed" in done.stdout
    report = json.loads(done.stdout.splitlines()[-1])
    assert {cell["subject"] for cell in report["cells"]} == {"multihead"}
    assert report["setting"]["dtype"] == "bfloat16" and report["versions"]["x-transformers"] is None
    for cell in report["cells"]:
        assert cell["seconds"].keys() == {"regard", "torch"}
        assert (cell["verdict"] == "not judged") == (cell["work"] == "step")


def judged(subject: str, *words: str) -> list[dict]:
    return [{"subject": subject, "ratio": 1.0, "again": 1.01, "verdict": word} for word in words]


def test_a_missing_device_is_a_usage_error() -> None:
    cuda = importlib.import_module("torch").cuda.is_available()
    done = run("--quick", "--device", "nowhere" if cuda else "cuda")
    assert done.returncode == 2 and ("invalid choice" if cuda else "torch sees no CUDA device") in done.stderr
