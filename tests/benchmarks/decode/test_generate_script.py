"""benchmarks/decode/generate_cpu.py gives its contenders the same work, and reports as promised; no timing here."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(load_script: Any) -> ModuleType:
    return load_script("generate_cpu")


@pytest.fixture(scope="module")
def peers(load_script: Any) -> ModuleType:
    return load_script("generate_peers")


def test_quick_run_prints_a_table_and_a_last_line_of_json(run_script: Any) -> None:
    table, report = run_script("generate_cpu", "--quick", "--streams", "2", "--threads", "1")
    assert report["command"] == "python benchmarks/decode/generate_cpu.py --quick --streams 2 --threads 1"
    assert [cell["sampled"] for cell in report["cells"]] == [False, True]
    for cell in report["cells"]:
        assert cell["shared_with_regard_fp32"]["transformers fp32"] == 1.0
        assert cell["tokens_per_second"].keys() == cell["cpu_ms_per_token"].keys()
        assert min(cell["tokens_per_second"].values()) > 0
    assert sum(line.startswith("quick ") for line in table) == 2


@pytest.mark.parametrize("shape", ["gpt2", "shakespeare"])
def test_transformers_generates_the_same_texts(script: ModuleType, peers: ModuleType, shape: str) -> None:
    if shape == "gpt2":
        config = dataclasses.replace(peers.SHAPES["gpt2"], vocabulary=300, dim=48, hidden=64, layers=2)
        model = peers.make_model(config)
    else:
        model = script.load(shape)
    cell = peers.Cell(streams=3, threads=1, sampled=False, prompt=8, length=12)
    prompts = peers.make_prompts(model.config, cell)
    ours = peers.Regard(model, "packed").generate(prompts, cell)
    assert ours == peers.Transformers(model).generate(prompts, cell)
    assert {len(text) for text in ours} == {12}
