"""benchmarks/train_gpu.py runs, measures equal work and judges as promised; no timing here."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("train_gpu")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def options(**changes: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"quick": True, "dropout": "everywhere", "set": [], "data": None, "rounds": 2, "profile": False} | changes
    )


def contenders(script: ModuleType, name: str) -> dict[str, Any]:
    """The toy contenders of a cell, with biases and norms away from 0 and 1, where a mistake would not show."""
    args = options()
    setting = replace(script.setting_of(args, name), layers=2, dropout=0.0)
    recipe = script.recipe_of(args, name, "cpu")
    make = {"gpt2": script.gpt_contenders, "base": script.base_contenders, "tiny": script.tiny_contenders}[name]
    more = {"data": None} if name == "tiny" else {"compiled": False}
    found = make(setting, "cpu", recipe, **more)
    for parameter in found["regard"].model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    copy_weights(name, found)
    return found


def copy_weights(name: str, found: dict[str, Any]) -> None:
    plain = importlib.import_module("train_gpu_contenders")
    copy = plain.copy_gpt_weights if name == "gpt2" else plain.copy_weights
    copy(found["regard"].model, found["torch"].model)


def test_quick_run_prints_a_table_and_a_last_line_of_json(tmp_path: Path) -> None:
    out = tmp_path / "results" / "quick.json"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "benchmarks/train_gpu.py", "--quick", "--only", "tiny", "--out", str(out), "--profile"],
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
    assert report.keys() >= {"date", "hardware", "versions", "command", "matmul_rate", "cells", "summary"}
    assert str(tmp_path) not in last and str(ROOT) not in last
    assert report["command"] == "python benchmarks/train_gpu.py --quick --only tiny --out quick.json --profile"
    (cell,) = report["cells"]
    assert cell["name"] == "tiny" and cell["rounds"] == 2 and report["summary"]["met"] is cell["met"]
    for one in cell["contenders"].values():
        assert one["tokens_per_second"] > 0 and one["milliseconds"] > 0 and 0 <= one["padding"] < 0.5
        assert one["shapes"] > 1  # the batches are ragged
    assert sum(line.startswith("tiny ") for line in table) == 2
    assert sum(line.startswith("tiny: ") for line in table) == 2 and any("aten::" in line for line in table)


def test_the_two_gpts_learn_alike(script: ModuleType) -> None:
    found = script.measure(options(), "gpt2", "cpu")
    curve = found["curve"]
    assert curve["same"] and curve["apart"] < 1e-4
    assert len(curve["regard"]) == len(curve["torch"]) == script.CURVE and curve["learnt"] > 0.05
    assert found["contenders"].keys() == {"regard", "torch"} and found["memory"] is None


@pytest.mark.parametrize("name", ["gpt2", "base", "tiny"])
def test_contenders_do_equal_work(script: ModuleType, name: str) -> None:
    found = contenders(script, name)
    ours, peer = found["regard"], found["torch"]
    script.check_equal(ours, peer, 1e-5)
    for batch in list(peer.batches())[:2]:
        ours.step(batch), peer.step(batch)
    script.check_equal(ours, peer, 1e-5)
    trained = [parameter.detach().clone() for parameter in peer.model.parameters()]
    copy_weights(name, found)
    for theirs, mine in zip(trained, peer.model.parameters(), strict=True):
        # Adam's first steps are the gradient's sign, which rounding decides near 0, where that of all keys' bias is.
        apart = (theirs - mine).abs() > 0.02 * peer.recipe.lr
        assert apart.float().mean() < (0.02 if mine.dim() > 1 else 0.34)
