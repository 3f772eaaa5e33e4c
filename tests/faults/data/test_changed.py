"""Data or recipe changed between two starts of a run: it is told what, and only what does no harm is allowed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Nursery, code, contents, first_code, trained_on, whole_checkpoints, write_recipe


def begin(nursery: Nursery, folder: Path) -> tuple[Path, Path]:
    """A recipe with data, and a run of it that was killed in step 8."""
    recipe = write_recipe(folder / "recipe")
    code(nursery.train(recipe, folder / "run", faults=({"kind": "die", "at": 8},)), -9)
    return recipe, folder / "run"


@pytest.fixture(scope="module")
def begun(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Such a recipe and run, to be refused only."""
    return begin(nursery, tmp_path_factory.mktemp("begun"))


CHANGES = {
    "a word": lambda lines: [re.sub("deux|DEUX", "vingt", line) for line in lines],
    "a line less": lambda lines: lines[:-1],
    "another order": lambda lines: lines[::-1],
}


def change(recipe: Path, how: Callable[[list[str]], list[str]]) -> None:
    for name in ("a.fr", "a.en"):
        path = recipe.with_name(name)
        path.write_text("".join(how(path.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_other_data(processes: int, begun: tuple[Path, Path], nursery: Nursery) -> None:
    recipe, run = begun
    files = {path: path.read_text() for path in recipe.parent.iterdir()}
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    for how in CHANGES.values():
        change(recipe, how)
        assert any(path.read_text() != text for path, text in files.items())
        told = first_code(nursery.train(recipe, run, processes=processes), 3)
        assert "was begun on other data" in told
        assert "--allow-changed-data" in told
        for path, text in files.items():
            path.write_text(text)
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_other_data_that_are_allowed(processes: int, nursery: Nursery, tmp_path: Path) -> None:
    """A place in the old data means nothing in the new: it goes on at the start of an epoch."""
    recipe, run = begin(nursery, tmp_path)
    change(recipe, lambda lines: lines[:60])
    note = {"kind": "note batches", "file": str(tmp_path / "batches")}
    team = nursery.train(recipe, run, "--allow-changed-data", processes=processes, faults=(note,))
    assert "continuing from step 6" in code(team, 0)
    batches = trained_on(tmp_path / "batches")
    seen: list[int] = []
    for (ids,) in batches.values():
        if len(seen) < 52:
            seen += ids
    assert sorted(seen) == list(range(52))  # 60 less 8 held out: an epoch from its start
    code(nursery.train(recipe, run), 0)  # from now on these are the run's data


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_another_recipe(processes: int, begun: tuple[Path, Path], nursery: Nursery) -> None:
    recipe, run = begun
    options = ("--set", "training.lr=0.01", "--set", "model.dim=32", "--set", "training.steps=15")
    told = first_code(nursery.train(recipe, run, *options, processes=processes), 2)
    assert "training.lr: 0.001 -> 0.01" in told
    assert "model.dim: 16 -> 32" in told
    assert "training.steps" not in told  # more steps are allowed


ALLOWED = {
    "training.steps": "13",
    "training.save_every": "5",
    "training.validate_every": "5",
    "training.log_every": "5",
    "training.keep": "3",
}


MOST_CHANGED = ("training.steps", "training.save_every")


@pytest.mark.parametrize(
    "key", [*MOST_CHANGED, *(pytest.param(key, marks=pytest.mark.slow) for key in ALLOWED if key not in MOST_CHANGED)]
)
def test_more_steps_and_other_intervals(key: str, begun: tuple[Path, Path], nursery: Nursery, tmp_path: Path) -> None:
    recipe, run = begun[0], shutil.copytree(begun[1], tmp_path / "run")
    told = code(nursery.train(recipe, run, "--set", f"{key}={ALLOWED[key]}"), 0)
    assert "continuing from step 6" in told
    newest = {"training.steps": [12, 13], "training.save_every": [10, 12], "training.keep": [6, 9, 12]}
    assert whole_checkpoints(run) == newest.get(key, [9, 12])


def test_another_interval_changes_no_bit(
    begun: tuple[Path, Path], nursery: Nursery, whole: Path, tmp_path: Path
) -> None:
    recipe, run = begun[0], shutil.copytree(begun[1], tmp_path / "run")
    code(nursery.train(recipe, run, "--set", "training.save_every=1"), 0)
    assert contents(run) == contents(whole)
