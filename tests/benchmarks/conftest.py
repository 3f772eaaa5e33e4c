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
    """`load_script("train")`: benchmarks/train/train.py as a module."""

    def load(name: str) -> ModuleType:
        script = path_of(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(ROOT))
            return importlib.import_module(f"benchmarks.{script.parent.name}.{name}")

    return load


def path_of(name: str) -> Path:
    """The path of the script of that name, whichever folder it is in."""
    (script,) = (ROOT / "benchmarks").glob(f"*/{name}.py")
    return script


@pytest.fixture
def run_script(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    """`run_script("train", "--quick")`: the lines that the script prints, and the report that is the last of them."""

    def run(name: str, *arguments: str, status: int = 0) -> tuple[list[str], dict[str, Any]]:
        script = load_script(name)
        with monkeypatch.context() as patch:
            patch.chdir(ROOT)
            patch.setattr(sys, "argv", [path_of(name).relative_to(ROOT).as_posix(), *arguments])
            patch.setattr(torch, "set_num_threads", lambda threads: None)  # the other tests have the same process
            patch.setenv("PYTHONPATH", str(ROOT))  # for the processes that some scripts start
            patch.setenv("OMP_NUM_THREADS", "1")
            patch.setenv("REGARD_GRAPHS", "1")  # so that it is put back: decode_gpu.py changes it
            assert script.main() == status
        *table, last = capsys.readouterr().out.splitlines()
        assert str(ROOT) not in last, "a report names no folder of this machine"
        return table, json.loads(last)

    return run
