"""Resume with another number of processes, 4 -> 2 -> 1: the same samples in the same global batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import Nursery, code, largest_difference, metrics, tensors, trained_on, write_recipe

STEPS = {"steps = 12": "steps = 30", "save_every = 3": "save_every = 10", "log_every = 2": "log_every = 1"}
EXACT = {"dropout = 0.1": "dropout = 0.0", "sampling = 0.3": "sampling = 0.0"}
FLOAT64 = {"kind": "float64"}


def in_parts(
    nursery: Nursery, recipe: Path, folder: Path, *faults: dict[str, Any], parts: tuple[int, ...] = (4, 2, 1)
) -> list[Path]:
    """Train steps 1 to 10 in four processes, to 20 in two, to 30 in one; what each part was trained on."""
    notes = []
    for number, processes in enumerate(parts, start=1):
        notes.append(folder / f"batches-{number}")
        note = {"kind": "note batches", "file": str(notes[-1])}
        # A signal ends the first parts: another number of steps would be another schedule.
        stop = ({"kind": "signal", "at": 10 * number},) if number < len(parts) else ()
        team = nursery.train(recipe, folder / "run", processes=processes, faults=(*faults, note, *stop))
        code(team, 143 if stop else 0)
    return notes


def at_once(nursery: Nursery, recipe: Path, folder: Path, *faults: dict[str, Any]) -> Path:
    note = {"kind": "note batches", "file": str(folder / "batches")}
    code(nursery.train(recipe, folder / "whole", faults=(*faults, note)), 0)
    return folder / "batches"


def check_samples(notes: list[Path], whole: Path) -> None:
    """All ids in the same global batches, each in the share of one process, and shares as they are said to be."""
    joined: dict[int, list[list[int]]] = {}
    for note, processes in zip(notes, (4, 2, 1), strict=True):
        joined |= trained_on(note)
        for line in note.read_text().splitlines():
            _, rank, ids, all_ids = json.loads(line)
            assert ids == all_ids[rank::processes]
    assert list(joined) == list(range(1, 31))
    assert joined == trained_on(whole)


@pytest.mark.slow  # the samples are the same without them, below
def test_with_dropout_and_sampling(nursery: Nursery, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe", changes=STEPS)
    check_samples(in_parts(nursery, recipe, tmp_path), at_once(nursery, recipe, tmp_path))
    lines = metrics(tmp_path / "run")
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 31))
    assert [line["tokens"] for line in lines if line["kind"] == "train"] == [
        line["tokens"] for line in metrics(tmp_path / "whole") if line["kind"] == "train"
    ]


def test_without_them_in_float64(nursery: Nursery, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe", changes={**STEPS, **EXACT})
    check_samples(in_parts(nursery, recipe, tmp_path, FLOAT64), at_once(nursery, recipe, tmp_path, FLOAT64))
    ours, theirs = tensors(tmp_path / "run", 30), tensors(tmp_path / "whole", 30)
    assert {str(weight.dtype) for weight in ours.values()} == {"torch.float64"}
    assert largest_difference(ours, theirs) <= 1e-9


@pytest.mark.slow  # the same in float64 is above
def test_without_them_in_float32(nursery: Nursery, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "recipe", changes={**STEPS, **EXACT})
    in_parts(nursery, recipe, tmp_path)
    at_once(nursery, recipe, tmp_path)
    ours, theirs = metrics(tmp_path / "run"), metrics(tmp_path / "whole")
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6), one["step"]


def test_the_loss_is_divided_by_all_tokens(nursery: Nursery, tmp_path: Path) -> None:
    """Shares that are unequal, even empty: a mean of the processes' means would be another number."""
    recipe = write_recipe(tmp_path / "recipe", changes={**EXACT, "log_every = 2": "log_every = 1", "= 200": "= 60"})
    note = {"kind": "note batches", "file": str(tmp_path / "batches")}
    code(nursery.train(recipe, tmp_path / "run", processes=4, faults=(FLOAT64, note)), 0)
    code(nursery.train(recipe, tmp_path / "whole", faults=(FLOAT64,)), 0)
    sizes = [len(ids) for ids in trained_on(tmp_path / "batches").values() for ids in ids]
    assert any(size % 4 for size in sizes)
    assert min(sizes) < 4  # some process has nothing to do
    for one, other in zip(metrics(tmp_path / "run"), metrics(tmp_path / "whole"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-9)
    assert largest_difference(tensors(tmp_path / "run", 12), tensors(tmp_path / "whole", 12)) <= 1e-9
