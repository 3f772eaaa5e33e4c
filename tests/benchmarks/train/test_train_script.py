"""benchmarks/train/train.py runs, measures equal work and reports as promised; no timing here."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

CELL_KEYS = {"name", "place", "parameters", "tokens", "padding", "tokens_per_second", "ratio", "memory", "memory_ratio"}


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("train")


def contenders(script: ModuleType, **changes: Any) -> tuple[Any, Any, list]:
    """Both contenders with the same weights, and their batches."""
    setting = replace(script.QUICK, layers=2, **changes)
    ours, plain = script.Ours(setting, "cpu", "fp32"), script.Plain(setting, "cpu", "fp32")
    for parameter in ours.model.parameters():
        if parameter.dim() == 1:  # biases and norms away from 0 and 1, where a mistake would not show
            torch.nn.init.normal_(parameter, mean=0.5, std=0.5)
    script.copy_weights(ours.model, plain.model)
    return ours, plain, script.make_batches(setting, "cpu")


def test_quick_run_prints_a_table_and_a_last_line_of_json(
    run_script: Any, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of each is measured in a process of its own; test_memory_is_measured_in_another_process has one."""
    monkeypatch.setattr(script, "memory_alone", lambda setting, name, device, precision: len(name) * 10**9)
    out = tmp_path / "results" / "cpu.json"
    table, report = run_script("train", "--quick", "--device", "cpu", "--dropout", "sublayers", "--out", str(out))
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "cells", "summary"}
    assert report["setting"] == {"device": "cpu", "precision": "fp32"}
    assert report["command"].startswith("python benchmarks/train/train.py --quick")
    (cell,) = report["cells"]
    assert cell.keys() >= CELL_KEYS and cell["rounds"] >= 2 and 0 <= cell["padding"] < 0.5
    assert all(cell["tokens_per_second"][name] > 0 for name in ("regard", "torch"))
    assert cell["memory"] == {"regard": 6 * 10**9, "torch": 5 * 10**9} and cell["memory_ratio"] == pytest.approx(1.2)
    assert sum(line.startswith("quick ") for line in table) == 1
    busy = report["hardware"]["load"] > report["hardware"]["cores"] / 4
    assert report["summary"]["busy"] is busy is any("these numbers prove nothing" in line for line in table)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_memory_is_measured_in_another_process(script: ModuleType) -> None:
    weights = sum(parameter.numel() for parameter in script.Ours(script.QUICK, "cpu", "fp32").model.parameters())
    assert script.memory_alone(script.QUICK, "regard", "cpu", "fp32") > 4 * weights


def test_both_loops_compute_the_same_loss_gradients_and_update(script: ModuleType) -> None:
    ours, plain, batches = contenders(script, dropout=0.0)
    for batch in batches:
        mine, theirs = ours.loss(batch), plain.loss(batch)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=0.0)
    mine.backward(), theirs.backward()
    script.copy_weights(with_gradients(ours.model), plain.model)  # under torch's names
    gradients = [parameter.detach().clone() for parameter in plain.model.parameters()]
    for got, parameter in zip(gradients, plain.model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, atol=1e-6, rtol=1e-4)
    assert sum(bool(gradient.abs().max() > 1e-3) for gradient in gradients) > len(gradients) / 2

    ours, plain, batches = contenders(script, dropout=0.0)
    for contender in (ours, plain):
        contender.step(batches[0])
    ahead = [parameter.detach().clone() for parameter in plain.model.parameters()]
    script.copy_weights(ours.model, plain.model)
    for here, parameter, gradient in zip(ahead, plain.model.parameters(), gradients, strict=True):
        clear = gradient.abs() > 1e-5  # Adam's first step is the gradient's sign, which rounding decides near 0
        torch.testing.assert_close(here[clear], parameter[clear], atol=1e-6, rtol=1e-5)


def with_gradients(model: torch.nn.Module) -> torch.nn.Module:
    """The model with each parameter's gradient in its place."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    return model


@pytest.mark.parametrize("place", ["sublayers", "everywhere"])
def test_dropout_falls_on_the_same_tensors(script: ModuleType, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain, batches = contenders(script, place=place, dropout=0.25)
    seen: Counter = Counter()
    dropout, attention = F.dropout, F.scaled_dot_product_attention

    def noted_dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        seen["dropout", x.shape[-1], x.numel(), p] += training and p > 0
        return dropout(x, p, training, inplace)

    def noted_attention(*qkv: Any, **options: Any) -> Tensor:
        q, k, p = qkv[0], qkv[1], qkv[4] if len(qkv) > 4 else options.get("dropout_p", 0.0)
        seen["attention", q.shape[-2], k.shape[-2], p] += p > 0
        return attention(*qkv, **options)

    monkeypatch.setattr(F, "dropout", noted_dropout)
    monkeypatch.setattr(F, "scaled_dot_product_attention", noted_attention)
    found = []
    for contender in (ours, plain):
        seen.clear()
        contender.step(batches[0])
        found.append(+seen)
    assert found[0] == found[1]
    layers, inside = 2, place == "everywhere"
    assert found[0].total() == 2 + layers * 5 + inside * layers * (2 + 3)  # embeddings, sublayers; inside them
    kinds = {key[0] for key in found[0]}
    assert kinds == ({"dropout", "attention"} if inside else {"dropout"})
