"""FSDP2: each process holds a part of the model; it trains, saves, resumes and equals what DDP gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Nursery, code, largest_difference, leftovers, metrics, tensors, whole_checkpoints, write_recipe

EXACT = {"dropout = 0.1": "dropout = 0.0", "sampling = 0.3": "sampling = 0.0"}
FLOAT64 = {"kind": "float64"}
FSDP = ("--set", "training.parallel=fsdp")


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("exact"), changes=EXACT)


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_equals_ddp(processes: int, exact: Path, nursery: Nursery, tmp_path: Path) -> None:
    """In float64, where rounding stays rounding: Adam makes large steps of the smallest gradients."""
    code(nursery.train(exact, tmp_path / "fsdp", *FSDP, processes=processes, faults=(FLOAT64,)), 0)
    code(nursery.train(exact, tmp_path / "ddp", processes=processes, faults=(FLOAT64,)), 0)
    for step in (9, 12):
        for name in ("weights", "optimizer"):
            ours, theirs = tensors(tmp_path / "fsdp", step, name), tensors(tmp_path / "ddp", step, name)
            assert largest_difference(ours, theirs) <= 1e-9
    for one, other in zip(metrics(tmp_path / "fsdp"), metrics(tmp_path / "ddp"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-9)
    assert leftovers(tmp_path / "fsdp") == []


@pytest.mark.slow
def test_equals_ddp_in_float32(exact: Path, nursery: Nursery, tmp_path: Path) -> None:
    code(nursery.train(exact, tmp_path / "fsdp", *FSDP, processes=2), 0)
    code(nursery.train(exact, tmp_path / "ddp", processes=2), 0)
    for one, other in zip(metrics(tmp_path / "fsdp"), metrics(tmp_path / "ddp"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-5)


def test_resumes(recipe: Path, nursery: Nursery, tmp_path: Path) -> None:
    """After a signal, and after kill -9; with dropout, for the generators of all processes are saved."""
    code(nursery.train(recipe, tmp_path / "whole", *FSDP, processes=2, faults=(FLOAT64,)), 0)
    run = tmp_path / "run"
    faults = (FLOAT64, {"kind": "signal", "at": 4, "rank": 1})
    assert "after step 4" in code(nursery.train(recipe, run, *FSDP, processes=2, faults=faults), 143)
    assert whole_checkpoints(run) == [3, 4]
    killed = nursery.train(recipe, run, *FSDP, processes=2, faults=(FLOAT64, {"kind": "die", "at": 8, "rank": 0}))
    assert -9 in killed.wait()
    assert "continuing from step 6" in code(nursery.train(recipe, run, *FSDP, processes=2, faults=(FLOAT64,)), 0)
    assert largest_difference(tensors(run, 12), tensors(tmp_path / "whole", 12)) <= 1e-9


def test_a_step_that_is_not_finite(exact: Path, nursery: Nursery, tmp_path: Path) -> None:
    spoil = {"kind": "spoil", "at": [5], "rank": 1}
    code(nursery.train(exact, tmp_path / "run", *FSDP, processes=2, faults=(spoil,)), 0)
    assert [line["skipped"] for line in metrics(tmp_path / "run") if line["kind"] == "train"] == [0, 0, 1, 1, 1, 1]
    assert all(bool(weight.isfinite().all()) for weight in tensors(tmp_path / "run", 12).values())
