"""Several processes learn what one process learns: each kind of model, whole in each process or spread over them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from regard.training.parallel.group import ALONE, join

SCRIPT = Path(__file__).with_name("processes.py")
WORLD = 2
KINDS = ("transformer", "transformer-lm", "encoder", "rnn-attention", "rnn-lm")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("processes", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both processes found."""
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, str(SCRIPT), str(folder), str(WORLD)]
    with (
        open(folder / "told", "wb") as told,
        # Standard input that is closed would tell them that the launcher is gone.
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=told) as process,
    ):
        assert process.wait(timeout=200) == 0, (folder / "told").read_text()
    return folder


def found(folder: Path, name: str) -> list[dict[str, torch.Tensor]]:
    """A result of every process."""
    return [load_file(folder / f"{name}.{rank}.safetensors") for rank in range(WORLD)]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", KINDS)
def test_processes_learn_what_one_learns(kind: str, parallel: str, folder: Path, script: ModuleType) -> None:
    """Accumulation, clipping, weight decay and the mean of the weights on; shares are unequal and some are empty."""
    one = script.alone(kind)
    for process in found(folder, f"{kind}-{parallel}"):
        assert process.keys() == one.keys()
        for name, want in one.items():
            if name == "loss":  # the padding of a share is less than that of the whole
                want = torch.cat([want[:2], process[name][2:]])
            torch.testing.assert_close(process[name], want, rtol=0, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def test_a_process_without_memory_tells_the_others(folder: Path, script: ModuleType) -> None:
    """All of them take the step again in halves, and the weights are the usual ones."""
    first, last = found(folder, "one-memory")
    usual = script.alone("transformer")
    for name in usual.keys() & first.keys():
        torch.testing.assert_close(first[name], usual[name], rtol=0, atol=1e-9)
        assert torch.equal(first[name], last[name])
    # Micro-batches of 5, 1 | 2, 4 | 1, 1 rows; the first process has the larger halves of them.
    assert first["calls"].tolist() == [3, 1, 1, 2, 1, 0, 1, 1, 1, 1]
    assert last["calls"].tolist() == [2, 0, 1, 1, 0, 1, 1, 0, 0]


def test_a_number_that_is_not_finite_skips_the_step_everywhere(folder: Path) -> None:
    first, last = found(folder, "one-nan")
    assert first["skipped"] == last["skipped"] == 1
    for name in first.keys() - {"calls"}:
        assert torch.equal(first[name], last[name])
        assert first[name].isfinite().all()
    usual = found(folder, "transformer-ddp")[0]
    assert any(not torch.equal(first[name], usual[name]) for name in first.keys() & usual.keys())


def test_rows_of_all_processes_come_together_in_order(folder: Path) -> None:
    first, last = found(folder, "together")
    assert (first["first"], last["first"]) == (0, 0)  # the first process has no row at all
    assert first["rows"].tolist() == last["rows"].tolist() == [[0.0, 1.0, 2.0]]


def test_without_a_launcher_one_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with join() as group:
        assert group is ALONE
    assert ALONE.sum(1.5, 2.0) == ALONE.max(1.5, 2.0) == [1.5, 2.0]
