"""`regard bench`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import Result

from regard.cli.measure.bench import report, time_text
from regard.decoding import benchmark as bench
from regard.decoding.benchmark import Measured, measure_decoding
from regard.decoding.cpu import c_matrix as compiled
from regard.decoding.cpu.packed_weight import Weight
from regard.tasks.loading import load

from ...repeats import by_default

Run = Callable[..., Result]
QUICK = ("--batch", "2", "--runs", "3", "--tokens", "5", "--source-tokens", "4")


@pytest.mark.parametrize("name", ["translator", "other", "plain", "short", "writer"])
@pytest.mark.parametrize("beam", by_default({"3"}, ["1", "3"]))
def test_every_model_that_writes(command: Run, models: dict[str, str], name: str, beam: str) -> None:
    result = command("bench", "-m", models[name], *QUICK, "--beam", beam, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["model"] == models[name] and found["beam"] == int(beam) and found["batch"] == 2
    assert found["tokens"] == [10] * 3 and found["alone_tokens"] == [5] * 3
    assert (found["source_tokens"], found["tokens_per_text"], found["runs"]) == (4, 5, 3)
    assert 0 < found["latency"]["p50"] <= found["latency"]["p90"] <= found["latency"]["p99"]
    assert min(found["tokens_per_second"], found["floor"], found["share_of_floor"], found["step_bytes"]) > 0
    assert found["device"] == "cpu" and found["allocated"] is None


def test_a_table_for_people(command: Run, models: dict[str, str]) -> None:
    result = command("bench", "-m", models["translator"], *QUICK)
    assert result.exit_code == 0, result.stderr
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names == ["model", "machine", "work", "speed", "latency", "memory", "floor", "share"]
    assert "batch 2, beam 1, 4 source tokens and 5 generated tokens per text, 3 runs" in result.stdout


def test_the_numbers_of_the_table() -> None:
    found = Measured(
        batch=4,
        tokens=[40],
        seconds=[2.0],
        alone_tokens=[10],
        alone_seconds=[0.5],
        alone_steps=[20],
        step_bytes=10**6,
        read_speed=2e9,
        resident=123 * 10**6,
        allocated=45 * 10**6,
    )
    machine = {"device": "cuda", "threads": 2, "dtype": "float32", "torch": "2"}
    work = {"model": "m", "kind": "transformer", "parameters": 1234, "beam": 1, "runs": 1}
    text = report({**machine, **work, "source_tokens": 7.0, "tokens_per_text": 10.0}, found)
    for part in (
        "m: transformer, 1,234 parameters",
        "cuda, 2 threads, float32, torch 2",
        "20 tokens/s, 2 texts/s",
        "p50 500 ms, p90 500 ms, p99 500 ms",
        "123.0 MB resident, 45.0 MB on the GPU at the peak",
        "500 µs per step: 1.0 MB of weights at 2.0 GB/s",
        "2.0% of the floor: a step for a single text takes 25 ms",
    ):
        assert part in text
    assert [time_text(seconds) for seconds in (2.5, 0.0125, 3e-6)] == ["2.5 s", "12.5 ms", "3 µs"]


@pytest.mark.parametrize("name", ["translator", "short", "writer"])
def test_lines_of_ones_own(command: Run, models: dict[str, str], name: str, tmp_path: Path) -> None:
    """They end where they end, in which they are like what the library writes; empty lines are no texts."""
    file = tmp_path / "lines.txt"
    file.write_text("le chat noir\n\nJane dort\n  \nla maison\nnot read\n", encoding="utf-8")
    options = ("--file", file, "--batch", "1", "--runs", "3", "--json")
    found = json.loads(command("bench", "-m", models[name], *options).stdout)
    face: Any = load(models[name])
    lines = ["le chat noir", "Jane dort", "la maison"]
    if name == "writer":
        assert found["source_tokens"] == pytest.approx(sum(1 + len(face.tokenizer.encode(one)) for one in lines) / 3)
        assert all(0 < tokens <= 200 for tokens in found["tokens"])
    else:
        wanted = face.translate(lines, beam=1, guard=False)
        assert found["tokens"] == [len(one.tokens) for one in wanted]
    exact = json.loads(command("bench", "-m", models[name], *options, "--tokens", "4").stdout)
    assert exact["tokens"] == [4, 4, 4]


def test_threads_and_dtype(command: Run, models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    options = ("--threads", "3", "--dtype", "bfloat16", "--json")
    half = json.loads(command("bench", "-m", models["translator"], *QUICK, *options).stdout)
    full = json.loads(command("bench", "-m", models["translator"], *QUICK, "--json").stdout)
    assert [count for count in asked if count != 1] == [3] and half["threads"] == torch.get_num_threads()
    assert (half["dtype"], full["dtype"]) == ("bfloat16", "float32")
    assert 2 * half["step_bytes"] == full["step_bytes"]


def test_weights_are_laid_out_as_for_other_commands(
    command: Run, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = []

    def watched(model: Any, *inputs: Any, **settings: Any) -> Measured:
        forms.append(isinstance(next(model.parameters()), Weight))
        return measure_decoding(model, *inputs, **settings)

    monkeypatch.setattr(bench, "measure_decoding", watched)
    measure = ("bench", "-m", models["translator"], "--runs", "1", "--tokens", "2", "--json")
    packed = json.loads(command(*measure).stdout)
    there = compiled.compiled() is not None
    monkeypatch.setattr("regard.decoding.cpu.packed_copy.compiled", lambda: None)
    plain = json.loads(command(*measure).stdout)
    assert forms == [there, False]
    assert packed["step_bytes"] == plain["step_bytes"]  # the same numbers in another order


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("encoder", [], 2, "'encoder', which generates no text"),
        ("short", ["--tokens", "40"], 2, "learned 24 positions"),
        ("translator", ["--file", "lines.txt", "--source-tokens", "3"], 2, "pass it or --file, not both"),
        ("translator", ["--file", "nothing.txt"], 3, "nothing.txt: no such file"),
        ("translator", ["--device", "tpu"], 2, "unknown device 'tpu'"),
        ("translator", ["--batch", "0"], 2, "--batch"),
    ],
)
def test_wrong_input(
    command: Run, models: dict[str, str], name: str, options: list[str], code: int, message: str
) -> None:
    result = command("bench", "-m", models[name], *options, "--runs", "1")
    assert (result.exit_code, result.stdout) == (code, "") and message in result.stderr


def test_wrong_files_and_models(command: Run, models: dict[str, str], tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    result = command("bench", "-m", models["translator"], "--file", empty)
    assert result.exit_code == 3 and "has no text to measure with" in result.stderr
    result = command("bench", "-m", tmp_path / "nothing")
    assert result.exit_code == 4 and "there is no folder" in result.stderr
