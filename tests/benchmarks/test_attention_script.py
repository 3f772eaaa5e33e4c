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


def test_ratio_is_taken_round_by_round(script: ModuleType) -> None:
    """A slow spell hits both sides of a round and cancels; the ratio of the medians would say 0.55."""
    samples = script.Samples({"regard": [1.1, 20.0, 1.1], "sdpa": [1.0, 18.0, 2.0]})
    assert samples.ratio("regard", "sdpa") == pytest.approx(1.1)
    assert samples.excess("regard", "sdpa") == pytest.approx(0.1)
    assert samples.median("sdpa") == 2.0


@pytest.mark.parametrize(
    ("subject", "work", "ours", "theirs", "word"),
    [
        ("attend", "forward", 14e-6, {"sdpa": 10e-6}, "level"),  # 40%, but only 4 us
        ("attend", "forward", 16e-6, {"sdpa": 10e-6}, "behind"),  # 6 us
        ("attend", "forward", 1.029, {"sdpa": 1.0}, "level"),
        ("attend", "forward", 1.031, {"sdpa": 1.0}, "behind"),
        ("attend", "forward", 0.999, {"sdpa": 1.0}, "ahead"),
        ("multihead", "forward", 14e-6, {"torch": 10e-6, "x-transformers": 20e-6}, "behind"),  # no microseconds here
        ("multihead", "forward", 1.02, {"torch": 1.0, "x-transformers": 2.0}, "level"),
        ("multihead", "forward", 1.02, {"torch": 2.0, "x-transformers": 1.0}, "level"),
        ("multihead", "forward", 0.9, {"torch": 1.0, "x-transformers": 2.0}, "ahead"),
        ("multihead", "step", 0.9, {"torch": 0.5, "x-transformers": 1.0}, "ahead"),  # torch has no cache
        ("multihead", "step", 0.9, {"torch": 1.0}, "not judged"),
    ],
)
def test_verdict(script: ModuleType, subject: str, work: str, ours: float, theirs: dict, word: str) -> None:
    samples = script.Samples({"regard": [ours], **{name: [seconds] for name, seconds in theirs.items()}})
    cell = script.Cell(subject, work, "none", 128)
    assert script.verdict(cell, samples, list(theirs))["verdict"] == word


def judged(subject: str, *words: str) -> list[dict]:
    return [{"subject": subject, "ratio": 1.0, "again": 1.01, "verdict": word} for word in words]


def test_summary_says_whether_the_targets_are_met(script: ModuleType) -> None:
    good = script.summary([*judged("attend", "level"), *judged("multihead", "ahead", "ahead", "level")])
    assert good["attend"]["met"] and good["multihead"]["met"]
    bad = script.summary([*judged("attend", "level", "behind"), *judged("multihead", "ahead", "level")])
    assert not bad["attend"]["met"]
    assert not bad["multihead"]["met"], "ahead in one of two cells is not most"
    assert not script.summary(judged("multihead", "ahead"))["attend"]["met"], "nothing measured is nothing proved"


def test_unequal_work_is_refused(script: ModuleType) -> None:
    torch = importlib.import_module("torch")
    forms = {"regard": {"": lambda: torch.ones(2)}, "torch": {"native": lambda: torch.ones(2) * 1.01}}
    with pytest.raises(AssertionError, match="regard and torch native do not compute the same thing"):
        script.check_equal(script.Cell("multihead", "forward", "none", 2), forms, 1e-4)
    gradients = {"regard": {"": lambda: (torch.ones(2), torch.ones(2))}, "torch": {"": lambda: torch.ones(2)}}
    with pytest.raises(ValueError, match="zip"):
        script.check_equal(script.Cell("multihead", "backward", "none", 2), gradients, 1e-4)


def test_a_missing_device_is_a_usage_error() -> None:
    cuda = importlib.import_module("torch").cuda.is_available()
    done = run("--quick", "--device", "nowhere" if cuda else "cuda")
    assert done.returncode == 2 and ("invalid choice" if cuda else "torch sees no CUDA device") in done.stderr
