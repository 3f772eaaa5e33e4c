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

import numpy as np
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


def test_the_curve_is_of_new_windows_with_something_to_learn(script: ModuleType) -> None:
    batches = script.smooth_batches(script.CELLS["gpt2"].quick, "cpu", count=script.CURVE, fixed=True)
    assert len(batches) == script.CURVE and all(batch.fixed for batch in batches)
    inputs, labels = (torch.cat([getattr(batch, side) for batch in batches]) for side in ("inputs", "labels"))
    assert torch.equal(inputs[:, 1:], labels[:, :-1]) and len(inputs.unique(dim=0)) == len(inputs)
    counts = labels.flatten().bincount(minlength=300)
    assert counts[:4].sum() == 0 and counts.max() > 20 * counts[4:].median()  # few words are frequent
    after = labels[inputs == counts.argmax()].bincount()
    assert 0.45 < after.max() / after.sum() < 0.75  # the known follower, and some that are drawn


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


def test_unequal_models_are_noticed(script: ModuleType) -> None:
    found = contenders(script, "gpt2")
    with torch.no_grad():
        found["torch"].model.norm.weight *= 1.5
    with pytest.raises(AssertionError, match="unequal losses"):
        script.check_equal(found["regard"], found["torch"], 1e-4)


def test_each_contender_trains_on_every_sentence_once_a_pass(script: ModuleType) -> None:
    found = contenders(script, "tiny")
    passes = [list(one.batches()) for one in found.values()]
    assert len({sum(batch.tokens for batch in one) for one in passes}) == 1
    for one in passes:
        assert sorted(i for batch in one for i in batch.ids) == list(range(script.CELLS["tiny"].quick.batches))


def test_sentences_without_data_are_as_long_as_multi30ks(script: ModuleType) -> None:
    batches = importlib.import_module("train_gpu_batches")
    corpus, tokens = batches.sentences(replace(script.CELLS["tiny"].setting, batches=2_000), None)
    for side in (corpus.source, corpus.target):
        lengths = np.array([len(row) for row in tokens.encode_all(side)])
        assert lengths.mean() == pytest.approx(14.0, abs=0.6)  # 13.9 and 14.1 with 10,000 joint pieces
        assert 0.25 < np.log(lengths).std() < 0.4
    assert all(4 <= token < tokens.size for row in tokens.encode_all(corpus.source) for token in row)


def test_sizes_and_work_are_those_of_the_papers(script: ModuleType) -> None:
    gpt = script.CELLS["gpt2"].setting
    with torch.device("meta"):
        model = importlib.import_module("train_gpu_contenders").PlainGPT(gpt)
    count = sum(one.numel() for one in model.parameters())
    assert count == 124_439_808 + (50_304 - 50_257) * 768  # Radford et al. 2019, with more rows in the table
    assert script.flops_per_token(gpt, count - 1024 * 768) == 6 * (count - 786_432) + 12 * 12 * 768 * 1024
    base = script.CELLS["base"].setting
    assert script.flops_per_token(base, 52_000_000) == 6 * 52_000_000 + 12 * 18 * 512 * 64


def test_a_verdict_needs_speed_memory_and_the_same_curve(script: ModuleType) -> None:
    cell, good = script.CELLS["gpt2"], {"ratio": 1.2, "memory": 20.0, "curve": {"same": True}}
    assert script.is_met(cell, good)
    for wrong in ({"ratio": 1.1}, {"memory": 25.0}, {"curve": {"same": False}}):
        assert not script.is_met(cell, good | wrong)
    assert script.is_met(script.CELLS["base"], good | {"ratio": 1.8, "memory": 99.0, "curve": None})


def test_curves_must_fall_together(script: ModuleType) -> None:
    def same(ours: list[float], theirs: list[float]) -> object:
        return script.compare_curves({"regard": {"losses": ours}, "torch": {"losses": theirs}}, "bf16")["same"]

    assert same([9.0, 7.01, 5.0], [9.0, 7.0, 5.02])
    assert not same([9.0, 7.1, 5.0], [9.0, 7.0, 5.0])
    assert not same([9.0, 9.01, 9.0], [9.0, 9.0, 9.0])  # nobody learns


def test_settings_are_for_all_cells_or_for_one(script: ModuleType) -> None:
    args = options(set=["clip=0.5", "base.lr=0.125"])
    assert script.recipe_of(args, "base", "cpu").lr == 0.125
    assert script.recipe_of(args, "tiny", "cpu").lr == script.RECIPE.lr
    assert {script.recipe_of(args, name, "cpu").clip for name in script.CELLS} == {0.5}
    plain = options()
    assert [script.recipe_of(plain, name, "cuda").compile for name in ("gpt2", "base", "tiny")] == [True, True, False]
    assert script.recipe_of(plain, "tiny", "cuda").capture and script.recipe_of(plain, "tiny", "cuda").fixed_shapes
