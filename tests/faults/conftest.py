"""Fixtures of the fault tests: a nursery for training processes, a recipe, and a run that nothing disturbed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # for harness.py

from harness import Nursery, code, write_recipe


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Starts training processes; see harness.py."""
    nursery = Nursery(tmp_path_factory.mktemp("nursery"))
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small recipe with its data. Only to be read: tests that change it write their own."""
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="session")
def whole(nursery: Nursery, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run of `recipe`, one process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    code(nursery.train(recipe, folder), 0)
    return folder


@pytest.fixture(scope="session")
def wholes(nursery: Nursery, recipe: Path, whole: Path, tmp_path_factory: pytest.TempPathFactory):
    """`wholes(n)`: the folder of an undisturbed run of `recipe` in n processes."""
    made = {1: whole}

    def get(processes: int) -> Path:
        if processes not in made:
            folder = tmp_path_factory.mktemp(f"whole-{processes}") / "run"
            code(nursery.train(recipe, folder, processes=processes), 0)
            made[processes] = folder
        return made[processes]

    return get
