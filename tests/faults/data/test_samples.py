"""No sample is skipped or repeated, wherever a training stops and goes on: audited by the ids that were trained on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Nursery, code, contents, held, trained_on, wait_for, write_recipe


def noted(folder: Path, name: str) -> dict[str, Any]:
    return {"kind": "note batches", "file": str(folder / name)}


@pytest.fixture(scope="module")
def small(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[int, list[list[int]]]]:
    """A recipe whose epochs have few batches, its undisturbed run, and what that was trained on, by step."""
    folder = tmp_path_factory.mktemp("small")
    recipe = write_recipe(folder, pairs=40, changes={"save_every = 3": "save_every = 50"})
    code(nursery.train(recipe, folder / "run", faults=(noted(folder, "batches"),)), 0)
    return recipe, folder / "run", trained_on(folder / "batches")


def epochs(batches: dict[int, list[list[int]]]) -> list[list[int]]:
    """The steps of each epoch: one ends when all 32 samples (40 less 8 held out) were met."""
    found, seen = [[]], []
    for step, (ids,) in batches.items():
        found[-1].append(step)
        seen += ids
        if len(seen) == 32:
            assert len(set(seen)) == 32  # all of them, each once
            found.append([])
            seen = []
    return found


def test_an_epoch_has_every_sample_once(small: Any) -> None:
    _, _, batches = small
    assert list(batches) == list(range(1, 13))
    assert len(epochs(batches)) >= 3


@pytest.mark.parametrize(
    ("moment", "processes"),
    [
        *(("before", 1), ("at", 2)),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in (("after", 1), ("at", 1), ("before", 2))),
    ],
)
def test_stopped_around_the_end_of_an_epoch(
    moment: str, processes: int, small: Any, nursery: Nursery, tmp_path: Path
) -> None:
    recipe, whole, batches = small
    last = epochs(batches)[0][-1] + {"before": -1, "at": 0, "after": 1}[moment]
    stop = {"kind": "signal", "at": last}
    code(nursery.train(recipe, tmp_path / "run", processes=processes, faults=(stop, noted(tmp_path, "a"))), 143)
    code(nursery.train(recipe, tmp_path / "run", processes=processes, faults=(noted(tmp_path, "b"),)), 0)
    first, second = trained_on(tmp_path / "a"), trained_on(tmp_path / "b")
    assert list(first) == list(range(1, last + 1))
    assert first | second == batches
    assert not first.keys() & second.keys()
    if processes == 1:
        assert contents(tmp_path / "run") == contents(whole)


def test_stopped_twice_at_one_step(small: Any, nursery: Nursery, tmp_path: Path) -> None:
    """The second time nothing was done in between: a signal before the first batch."""
    recipe, whole, batches = small
    run = tmp_path / "run"
    code(nursery.train(recipe, run, faults=({"kind": "signal", "at": 4}, noted(tmp_path, "a"))), 143)
    early = ({"kind": "signal", "at": 0}, noted(tmp_path, "b"))
    assert "after step 4" in code(nursery.train(recipe, run, faults=early), 143)
    assert not (tmp_path / "b").exists()
    code(nursery.train(recipe, run, faults=(noted(tmp_path, "c"),)), 0)
    assert trained_on(tmp_path / "a") | trained_on(tmp_path / "c") == batches
    assert contents(run) == contents(whole)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_after_the_end(processes: int, small: Any, nursery: Nursery, tmp_path: Path) -> None:
    recipe, run, _ = small
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    again = nursery.train(recipe, run, processes=processes, faults=(noted(tmp_path, "batches"),))
    assert "already complete: all steps are done, at step 12" in code(again, 0)
    assert not (tmp_path / "batches").exists()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_the_end_is_agreed_on(small: Any, nursery: Nursery, tmp_path: Path) -> None:
    """Cut off between the last checkpoint and the note that all is done: the first process writes that note now, and
    a second one that is slow to start must not take it for an old one."""
    recipe, whole, _ = small
    run = shutil.copytree(whole, tmp_path / "run")
    (run / "training" / "finished").unlink()
    team = nursery.train(recipe, run, processes=2, faults=held("load", 12, tmp_path, rank=1, processes=2))
    wait_for(tmp_path / "reached")
    time.sleep(0.7)  # time enough for the first one to finish alone
    (tmp_path / "go").touch()
    assert "all steps are done" in code(team, 0)
    assert (run / "training" / "finished").exists()


def test_stopped_with_accumulated_micro_batches(nursery: Nursery, tmp_path: Path) -> None:
    """A step takes several batches, over the end of an epoch, too; none of a step that did not happen is lost."""
    recipe = write_recipe(tmp_path / "recipe", pairs=40, changes={"[decoding]": "accumulate = 3\n[decoding]"})
    code(nursery.train(recipe, tmp_path / "whole", faults=(noted(tmp_path, "whole-batches"),)), 0)
    batches = trained_on(tmp_path / "whole-batches")
    assert {len(found) for found in batches.values()} == {3}
    code(nursery.train(recipe, tmp_path / "run", faults=({"kind": "die", "at": 5}, noted(tmp_path, "a"))), -9)
    code(nursery.train(recipe, tmp_path / "run", faults=(noted(tmp_path, "b"),)), 0)
    first, second = trained_on(tmp_path / "a"), trained_on(tmp_path / "b")
    assert min(second) == 4  # the checkpoint is of step 3
    assert {step: found for step, found in first.items() if step < 4} | second == batches
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
