"""Benchmark scripts as modules, and runs of them in the process of the test."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """`load_script("train")`: benchmarks/train.py as a module, with its neighbours on the path as when it is run."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(ROOT / "benchmarks"))

    return load


@pytest.fixture
def run_script(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    """`run_script("train", "--quick")`: the lines that the script prints, and the report that is the last of them."""

    def run(name: str, *arguments: str, status: int = 0) -> tuple[list[str], dict[str, Any]]:
        script = load_script(name)
        with monkeypatch.context() as patch:
            patch.chdir(ROOT)
            patch.setattr(sys, "argv", [f"benchmarks/{name}.py", *arguments])
            patch.setattr(torch, "set_num_threads", lambda threads: None)  # the other tests have the same process
            patch.setenv("PYTHONPATH", str(ROOT))  # for the processes that some scripts start
            patch.setenv("OMP_NUM_THREADS", "1")
            patch.setenv("REGARD_GRAPHS", "1")  # so that it is put back: decode_gpu.py changes it
            assert script.main() == status
        *table, last = capsys.readouterr().out.splitlines()
        assert str(ROOT) not in last, "a report names no folder of this machine"
        return table, json.loads(last)

    return run
