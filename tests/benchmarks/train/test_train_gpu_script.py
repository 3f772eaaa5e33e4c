"""benchmarks/train/train_gpu.py runs, measures equal work and judges as promised; no timing here."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("train_gpu")


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
    plain = importlib.import_module("benchmarks.train.train_gpu_contenders")
    copy = plain.copy_gpt_weights if name == "gpt2" else plain.copy_weights
    copy(found["regard"].model, found["torch"].model)


@pytest.mark.slow
def test_quick_run_prints_a_table_and_a_last_line_of_json(
    run_script: Any, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell that would have a process of its own is measured in this one."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        with redirect_stdout(StringIO()) as printed, monkeypatch.context() as patch:
            patch.setattr(sys, "argv", command[1:])
            status = script.main()
        return subprocess.CompletedProcess(command, status, printed.getvalue())

    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run, PIPE=None))
    out = tmp_path / "results" / "quick.json"
    table, report = run_script("train_gpu", "--quick", "--only", "tiny", "--out", str(out), "--profile")
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "matmul_rate", "cells", "summary"}
    assert str(tmp_path) not in json.dumps(report)
    assert report["command"] == "python benchmarks/train/train_gpu.py --quick --only tiny --out quick.json --profile"
    (cell,) = report["cells"]
    assert cell["name"] == "tiny" and cell["rounds"] == 2 and report["summary"]["met"] is cell["met"]
    for one in cell["contenders"].values():
        assert one["tokens_per_second"] > 0 and one["milliseconds"] > 0 and 0 <= one["padding"] < 0.5
        assert one["shapes"] > 1  # the batches are ragged
    assert sum(line.startswith("tiny ") for line in table) == 2
    assert sum(line.startswith("tiny: ") for line in table) == 2 and any("aten::" in line for line in table)


@pytest.mark.slow
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
