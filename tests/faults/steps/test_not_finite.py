"""NaN or Inf in a loss or a gradient: the step is left out in all processes; too many in a row end the training."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from harness import Nursery, code, metrics, tensors, trained_on, whole_checkpoints


def all_finite(run: Path) -> bool:
    return all(
        bool(tensor.isfinite().all())
        for step in whole_checkpoints(run)
        for name in ("weights", "optimizer")
        for tensor in tensors(run, step, name).values()
        if tensor.is_floating_point()
    )


@pytest.mark.parametrize(
    ("how", "what", "processes"),
    [
        ("nan", "loss", 1),
        ("inf", "gradient", 2),
        pytest.param("nan", "loss", 2, marks=pytest.mark.slow),
        pytest.param("inf", "gradient", 1, marks=pytest.mark.slow),
    ],
)
def test_such_a_step_is_left_out(
    how: str, what: str, processes: int, nursery: Nursery, recipe: Path, wholes, tmp_path: Path
) -> None:
    """In one process only; all leave it out, and it counts once."""
    run = tmp_path / "run"
    spoil = {"kind": "spoil", "at": [5, 8], "how": how, "what": what}
    if processes > 1:
        spoil["rank"] = 1
    note = {"kind": "note batches", "file": str(tmp_path / "batches")}
    told = code(nursery.train(recipe, run, processes=processes, faults=(spoil, note)), 0)
    assert [line["skipped"] for line in metrics(run) if line["kind"] == "train"] == [0, 0, 1, 2, 2, 2]
    assert all_finite(run)
    warnings = [line for line in told.splitlines() if "not finite" in line]
    assert [re.search(r"step (\d+)", line)[1] for line in warnings] == ["5", "8"]
    assert set(trained_on(tmp_path / "batches")) == set(range(1, 13))
    # Weights and optimizer are those of the step before: the first checkpoint is as ever, the last one is another.
    first = tensors(wholes(processes), 12)
    assert any(not torch.equal(weight, first[name]) for name, weight in tensors(run, 12).items())
    assert tensors(run, 12, "optimizer")[step_count(run)].item() == 10


def step_count(run: Path) -> str:
    """The name under which the optimizer keeps how many steps it has made."""
    return next(name for name in tensors(run, 12, "optimizer") if name.endswith("/step"))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_too_many_end_the_training(processes: int, nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """With the step, the learning rate and where the sentences stand."""
    run = tmp_path / "run"
    spoil = {"kind": "spoil", "at": list(range(5, 60))}
    if processes > 1:
        spoil["rank"] = 0  # the second one has nothing to do in a batch of one
    note = {"kind": "note batches", "file": str(tmp_path / "batches")}
    options = ("--set", "training.steps=40", "--set", "training.save_every=2")
    told = code(nursery.train(recipe, run, *options, processes=processes, faults=(spoil, note)), 5)
    (last,) = {line for line in told.splitlines() if "diverged" in line}
    assert "at step 24" in last
    rate = float(re.search(r"learning rate ([\d.e-]+)", last)[1])
    assert rate == pytest.approx(0.5 * 1e-3 * (1 + torch.tensor(torch.pi * 22 / 38).cos().item()), rel=1e-2)
    places = re.findall(r"a\.fr:(\d+)", last)
    assert places
    lines = [int(place) - 1 for place in places]
    sources = (recipe.parent / "a.fr").read_text().splitlines()
    assert all(0 <= line < len(sources) for line in lines)
    assert all_finite(run)
    assert "Traceback" not in told
    # Skipped steps are counted in the checkpoint: the next start does not get another 20.
    assert "at step 24" in code(nursery.train(recipe, run, *options, processes=processes, faults=(spoil,)), 5)
