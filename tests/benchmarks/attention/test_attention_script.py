"""attention.py runs, measures equal work, judges by its targets and reports as promised; no timing here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

CELL_KEYS = {"subject", "work", "mask", "m", "n", "seconds", "forms", "ratios", "again", "rounds", "verdict", "ratio"}


@pytest.mark.slow
def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any, tmp_path: Path) -> None:
    out = tmp_path / "results" / "cpu.json"
    table, report = run_script("attention", "--quick", "--device", "cpu", "--sizes", "5", "--out", str(out))
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "cells", "summary"}
    assert report["hardware"]["cores"] == os.cpu_count() and report["setting"]["dtype"] == "float32"
    assert report["versions"].keys() == {"python", "torch", "regard", "x-transformers"}
    assert report["command"].startswith("python benchmarks/attention/attention.py --quick")

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
    assert report["summary"]["busy"] is busy is any("these numbers prove nothing" in line for line in table)


@pytest.mark.slow
def test_it_runs_without_x_transformers_and_in_bfloat16(
    run_script: Any, load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("attention", "attention_contenders"):
        monkeypatch.setattr(load_script(name), "HAS_X_TRANSFORMERS", False)
    options = ("--quick", "--device", "cpu", "--sizes", "4", "--only", "multihead", "--dtype", "bfloat16")
    table, report = run_script("attention", *options)
    assert any("x-transformers is not installed" in line for line in table)
    assert {cell["subject"] for cell in report["cells"]} == {"multihead"}
    assert report["setting"]["dtype"] == "bfloat16" and report["versions"]["x-transformers"] is None
    for cell in report["cells"]:
        assert cell["seconds"].keys() == {"regard", "torch"}
        assert (cell["verdict"] == "not judged") == (cell["work"] == "step")


def test_a_missing_device_is_a_usage_error(run_script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cuda = torch.cuda.is_available()
    with pytest.raises(SystemExit) as end:
        run_script("attention", "--quick", "--device", "nowhere" if cuda else "cuda")
    assert end.value.code == 2
    assert ("invalid choice" if cuda else "torch sees no CUDA device") in capsys.readouterr().err
