"""benchmarks/decode_cpu.py runs, has the same weights in all contenders, tells ties from errors; no timing here."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from regard.decoding.searches.observer import StepRecord

ROOT = Path(__file__).parents[2]
PEERS = ("CTranslate2 fp32", "transformers fp32")


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module, with its neighbours on the path as when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield importlib.import_module("decode_cpu")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture(scope="module")
def same(script: ModuleType) -> ModuleType:
    return sys.modules["decode_same"]


@pytest.fixture(scope="module")
def contenders(script: ModuleType) -> dict[str, Any]:
    threads = torch.get_num_threads()
    try:
        return script.make_contenders(script.QUICK, 1)
    finally:
        torch.set_num_threads(threads)


def run(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: str, hide: tuple[str, ...] = ()) -> int:
    """The script's status for these arguments; the modules named in `hide` are not installed."""
    monkeypatch.setattr(sys, "argv", ["decode_cpu.py", "--quick", "--threads", "1", *arguments])
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


def test_a_cell_that_is_none_is_a_usage_error(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(script, monkeypatch, "--cells", "32x4")
    assert "is not BATCH,BEAM" in capsys.readouterr().err


def test_the_profile_is_of_steps_alone(
    script: ModuleType, contenders: dict[str, Any], capsys: pytest.CaptureFixture
) -> None:
    class Noted(type(contenders["regard fp32"])):
        """Bears marks in place of work: one for the encoder, two for each step."""

        def generate(self, sources: Any, beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
            marks = ["encoder", *["product"] * (2 * self.setting.length)]
            for mark in marks:
                with torch.profiler.record_function(mark):
                    torch.zeros(10)
            return []

    script.profile({"noted": Noted(None, script.QUICK)}, script.QUICK, 2, 2)
    shown = capsys.readouterr().out
    calls = {line.split()[0]: float(line.split()[-1]) for line in shown.splitlines() if line.startswith(("en", "pr"))}
    assert calls == {"encoder": 0.0, "product": 2.0}
    assert "noted, batch 2, beam 2: a step takes" in shown


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
    peers = sys.modules["decode_peers"]
    model = script.make_model(script.QUICK)
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.linspace(-0.1, 0.1, weight.numel()).view_as(weight)
    moved = peers.Ours(model, script.QUICK)
    with pytest.raises(AssertionError, match=r"CTranslate2 fp32 is .* from regard"):
        same.check_forced(moved, {"CTranslate2 fp32": contenders["CTranslate2 fp32"]}, script.QUICK)
    again = peers.CTranslate2(model, script.QUICK, dtype="float32", threads=1)
    assert same.check_forced(moved, {"CTranslate2 fp32": again}, script.QUICK)["CTranslate2 fp32"] < 1e-4


def test_one_at_a_time_is_loaded_and_all_are_warm(script: ModuleType) -> None:
    loaded: list[str] = []
    calls: list[str] = []

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

        @contextmanager
        def turn(self) -> Iterator[None]:
            loaded.append(self.name)
            yield
            loaded.remove(self.name)

        def generate(self, sources: Any, beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
            assert loaded == [self.name]
            calls.append(self.name)
            return []

    samples = script.take_turns({name: Noted(name) for name in "abc"}, [[5]], 1, rounds=4, budget=0.0)
    assert not loaded and {name: len(taken) for name, taken in samples.seconds.items()} == {"a": 4, "b": 4, "c": 4}
    turns = [(calls[i], calls[i + 1]) for i in range(0, len(calls), 2)]
    assert len(turns) == 12 and all(one == other for one, other in turns), "a call to warm up and one that is timed"


def test_ctranslate2_is_let_go_after_its_turn(script: ModuleType, contenders: dict[str, Any]) -> None:
    peer, sources = contenders["CTranslate2 fp32"], script.make_sources(script.QUICK, 2)
    with peer.turn() as translator:
        found = peer.generate(sources, 1)
        assert peer.translator is translator
    assert peer.translator is None and peer.generate(sources, 1) == found and peer.translator is None


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


def test_a_tie_is_told_from_an_error(script: ModuleType, same: ModuleType, contenders: dict[str, Any]) -> None:
    ours, sources = contenders["regard fp32"], script.make_sources(script.QUICK, 4)

    class Changed:
        """A peer that writes another last word."""

        def generate(self, sources: Any, beam: int, *, length_penalty: float = 1.0) -> list[list[int]]:
            return [[*text[:-1], 5 + (text[-1] == 5)] for text in ours.generate(sources, beam)]

    for beam in (1, 4):
        found = same.compare(ours, {"changed": Changed()}, sources, beams=(beam,))
        assert not found["met"] and len(found["differences"]) == 4
        assert not any(one["tie"] for one in found["differences"])
        if beam == 1:
            assert {one["step"] for one in found["differences"]} == {script.QUICK.length - 1}
    short = replace(script.QUICK, length=5)
    cut = type(ours)(ours.model, short)
    assert not same.compare(ours, {"cut": cut}, sources, beams=(1,))["exactly_as_long"]


def step(number: int, tokens: list[int], scores: list[float], parents: list[int], kept: list[int]) -> StepRecord:
    """One step of one source, as a search reports it."""
    one = torch.zeros(1, dtype=torch.long)
    return StepRecord(
        step=number,
        inputs=one,
        alternatives=one,
        tokens=torch.tensor([tokens]),
        logps=torch.tensor([scores], dtype=torch.double),
        scores=torch.tensor([scores], dtype=torch.double),
        parents=torch.tensor([parents]),
        kept=torch.tensor([kept]),
        ended=torch.zeros(1, len(tokens), dtype=torch.bool),
        done=one.bool(),
    )


def test_margins_of_a_search_by_hand(same: ModuleType) -> None:
    records = [
        step(0, [7, 8, 9, 6], [-1.0, -1.5, -1.50003, -4.0], [0, 0, 0, 0], [0, 1]),  # 9 is let go by a hair
        step(1, [7, 7, 8, 5], [-2.0, -2.2, -2.9, -3.0], [0, 1, 1, 0], [0, 1]),
    ]
    assert same.let_go(records, [7, 7], 2) == (2, 0.0)
    assert same.let_go(records, [8, 7], 2) == (2, pytest.approx(0.2))  # in the beam to the end: the last ranking
    assert same.let_go(records, [9, 7], 2) == (0, pytest.approx(3e-5))
    # Let go with 0.7 between, but a beam with 9 in place of 8 would have had other neighbours: the tie before counts.
    assert same.let_go(records, [7, 5], 2) == (0, pytest.approx(3e-5))
    greedy = [
        step(0, [7, 8], [-1.0, -1.00001], [0, 0], [0]),
        step(1, [4, 5], [-2.0, -2.5], [0, 0], [0]),
    ]
    assert same.let_go(greedy, [8, 4], 1) == (0, pytest.approx(1e-5))
    assert same.let_go(greedy, [7, 5], 1) == (1, pytest.approx(0.5))  # one row has no neighbours: no excuse


def test_agreement_counts_up_to_the_first_difference(same: ModuleType) -> None:
    assert same.agreement([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 9, 4], [5, 6, 7, 8]]) == 6 / 8


@pytest.mark.parametrize(
    ("batch", "int8", "fp32", "met"), [(1, 2.1, 1.6, 2), (1, 1.9, 1.6, 1), (32, 1.4, 1.4, 1), (32, 1.2, 1.6, 1)]
)
def test_verdicts(script: ModuleType, batch: int, int8: float, fp32: float, met: int) -> None:
    speeds = {"int8": int8, "fp32": fp32}
    verdicts = {
        dtype: {
            "ratio": ratio,
            "target": script.target(dtype, batch),
            "met": ratio >= script.target(dtype, batch),
            "again": 1.02,
        }
        for dtype, ratio in speeds.items()
    }
    texts = {"met": True, "penalties_cancel": True}
    found = script.summary([{"verdicts": verdicts}], texts)
    assert found["cells_met"] == met and found["met"] is (met == 2) and found["cells"] == 2
    assert found["worst"]["fp32"] == pytest.approx(fp32 / 1.5) and found["noise"] == pytest.approx(0.02)
    assert not script.summary([{"verdicts": {"fp32": verdicts["fp32"]}}], texts)["met"], "int8 was not measured"
    assert not script.summary([], texts)["met"]
