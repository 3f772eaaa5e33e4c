"""benchmarks/commands/cold_start.py runs and reports as promised; no timing here."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def script(load_script: Any) -> ModuleType:
    return load_script("cold_start")


@pytest.mark.slow  # it starts more than ten processes
def test_quick_run_prints_tables_and_a_last_line_of_json(run_script: Any, script: ModuleType) -> None:
    table, report = run_script("cold_start", "--quick")
    assert report["command"] == "python benchmarks/commands/cold_start.py --quick"
    assert {"import torch", script.SHELL, script.WITH_TORCH, "regard.load", "CTranslate2"} <= report["seconds"].keys()
    assert all(len(sample["wall"]) == len(sample["cpu"]) == 1 for sample in report["seconds"].values())
    for name in script.PHASES:
        assert sum(line.startswith(f"{name} ") for line in table) == 2  # without and with torch
