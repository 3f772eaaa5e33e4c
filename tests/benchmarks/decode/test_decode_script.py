"""benchmarks/decode/decode_cpu.py runs, has the same weights in all contenders and compares them; no timing here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[3]
PEERS = ("CTranslate2 fp32", "transformers fp32")


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("decode_cpu")


@pytest.fixture(scope="module")
def same(script: ModuleType) -> ModuleType:
    return sys.modules["benchmarks.decode.decode_same"]


@pytest.fixture(scope="module")
def contenders(script: ModuleType) -> dict[str, Any]:
    threads = torch.get_num_threads()
    try:
        return script.make_contenders(script.QUICK, 1)
    finally:
        torch.set_num_threads(threads)


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str, hide: tuple[str, ...] = ()) -> int:
    """The script's status for these arguments; the modules named in `hide` are not installed."""
    monkeypatch.setattr(sys, "argv", ["benchmarks/decode/decode_cpu.py", "--quick", "--threads", "1", *arguments])
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)  # it is the other tests' too
    for name in hide:
        monkeypatch.setitem(sys.modules, name, None)
    return script.main()


def test_quick_run_prints_a_table_and_a_last_line_of_json(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "cpu.json"
    assert run(script, monkeypatch, "--cells", "2,3", "--sources", "3", "--out", str(out)) == 0
    *table, last = capsys.readouterr().out.splitlines()
    report = json.loads(last)
    assert json.loads(out.read_text(encoding="utf-8")) == report
    assert report.keys() >= {"date", "hardware", "versions", "command", "setting", "texts", "cells", "summary"}
    assert report["versions"].keys() == {"python", "torch", "regard", "ctranslate2", "transformers"}
    assert str(ROOT) not in last and report["hardware"]["threads"] == 1
    texts = report["texts"]
    assert texts["met"] and texts["penalties_cancel"] and texts["exactly_as_long"] and texts["sources"] == 3
    assert texts["forced"].keys() == set(PEERS) and max(texts["forced"].values()) < 1e-4
    (cell,) = report["cells"]
    assert (cell["batch"], cell["beam"], cell["rounds"]) == (2, 3, 2)
    assert cell["tokens_per_second"].keys() >= {"regard fp32", "CTranslate2 int8", *PEERS}
    for name, speed in cell["tokens_per_second"].items():
        assert min(12 / x for x in cell["seconds"][name]) <= speed <= max(12 / x for x in cell["seconds"][name])
    for verdict in cell["verdicts"].values():
        assert verdict["met"] == (verdict["ratio"] >= verdict["target"])
    assert sum(line.startswith("    2    3") for line in table) == 1


def test_it_runs_without_the_peers(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    status = run(script, monkeypatch, "--cells", "1,1", "--check", hide=("ctranslate2", "transformers"))
    assert status == 1, "nothing compared is nothing proved"
    shown = capsys.readouterr().out
    assert "CTranslate2 int8 is not there" in shown and "transformers fp32 is not there" in shown
    report = json.loads(shown.splitlines()[-1])
    assert report["cells"][0]["verdicts"] == {} and not report["summary"]["met"] and not report["texts"]["met"]


def test_forced_to_one_prefix_all_compute_the_same(
    script: ModuleType, same: ModuleType, contenders: dict[str, Any]
) -> None:
    """And each weight counts: a peer that lacks one is found out."""
    ours, peers = contenders["regard fp32"], {name: contenders[name] for name in PEERS}
    found = same.check_forced(ours, peers, script.QUICK)
    assert found.keys() == set(PEERS)
    marian = peers["transformers fp32"].model
    # A bias of the keys adds the same to all scores of a query, so it cannot show.
    weights = [weight for name, weight in marian.named_parameters() if "k_proj.bias" not in name]
    assert len(weights) > 60
    for weight in weights:
        before = weight.detach().clone()
        with torch.no_grad():
            weight += torch.linspace(-0.1, 0.1, weight.numel()).view_as(weight)
        with pytest.raises(AssertionError, match=r"transformers fp32 is .* from regard"):
            same.check_forced(ours, {"transformers fp32": peers["transformers fp32"]}, script.QUICK)
        with torch.no_grad():
            weight.copy_(before)


def test_ctranslate2_gets_every_weight(script: ModuleType, same: ModuleType, contenders: dict[str, Any]) -> None:
    """All parameters of ours moved, and none is as it was drawn: what CTranslate2 is given follows."""
    peers = sys.modules["benchmarks.decode.decode_peers"]
    model = script.make_model(script.QUICK)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.linspace(-0.1, 0.1, weight.numel()).view_as(weight)
    moved = peers.Ours(model, script.QUICK)
    with pytest.raises(AssertionError, match=r"CTranslate2 fp32 is .* from regard"):
        same.check_forced(moved, {"CTranslate2 fp32": contenders["CTranslate2 fp32"]}, script.QUICK)
    again = peers.CTranslate2(model, script.QUICK, dtype="float32", threads=1)
    assert same.check_forced(moved, {"CTranslate2 fp32": again}, script.QUICK)["CTranslate2 fp32"] < 1e-4


def test_the_model_never_wants_to_end(script: ModuleType) -> None:
    model = script.make_model(script.QUICK)
    source, target = (torch.tensor(script.make_sources(script.QUICK, 8, seed=seed)) for seed in (5, 6))
    with torch.inference_mode():
        logits = model(source, target)
    low, others = logits[..., [0, 2, 3]], torch.cat([logits[..., 1:2], logits[..., 4:]], dim=-1)
    assert low.max() < -20 < -10 < others.min()


@pytest.mark.parametrize("beam", [1, 2, 4])
def test_all_write_the_same_texts(script: ModuleType, contenders: dict[str, Any], beam: int) -> None:
    sources = script.make_sources(script.QUICK, 12)
    texts = {name: one.generate(sources, beam) for name, one in contenders.items() if "fp32" in name}
    mine = texts["regard fp32"]
    assert all(found == mine for found in texts.values())
    assert {len(text) for text in mine} == {script.QUICK.length} and not {0, 2, 3} & {t for text in mine for t in text}
    assert len({tuple(text) for text in mine}) > 6, "sources make a difference"
    assert any(len(set(text)) > 2 for text in mine), "and texts are more than one word repeated"
