"""A disk that is full or may not be written to: a save fails loudly, and what was saved before stays."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Nursery, code, contents, first_code, leftovers, whole_checkpoints, write_recipe

NOBODY = 65534


@pytest.mark.parametrize(
    ("number", "processes"),
    [
        (errno.ENOSPC, 1),
        *(pytest.param(*other, marks=pytest.mark.slow) for other in ((errno.ENOSPC, 2), (errno.EDQUOT, 1))),
    ],
)
def test_no_space_left(number: int, processes: int, nursery: Nursery, recipe: Path, wholes, tmp_path: Path) -> None:
    run = tmp_path / "here" / "run"
    run.parent.mkdir()
    full = {"kind": "refuse", "errno": number, "words": ".step-00000006"}
    told = first_code(nursery.train(recipe, run, processes=processes, faults=(full,)), 6)
    assert str(run) in told
    assert os.strerror(number) in told
    assert "step 3" in told  # what is still there
    assert "Traceback" not in told
    assert whole_checkpoints(run) == [3]
    assert leftovers(run) == []
    code(nursery.train(recipe, run, processes=processes), 0)
    assert contents(run) == contents(wholes(processes))


def test_the_kernel_refuses_amid_a_file(nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    """Not injected, so that it comes from where the bytes are written: a limit on the size of files."""
    run = tmp_path / "here" / "run"
    run.parent.mkdir()
    told = code(nursery.train(recipe, run, faults=({"kind": "small files", "at": 6, "bytes": 8192},)), 6)
    assert str(run) in told
    assert "large" in told
    assert whole_checkpoints(run) == [3]
    assert leftovers(run) == []
    code(nursery.train(recipe, run), 0)
    assert contents(run) == contents(whole)


def test_little_space_is_told_before_the_first_step(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    options = ("--set", "training.steps=3")
    told = code(nursery.train(recipe, tmp_path / "run", *options, faults=({"kind": "full disk", "free": 1000},)), 0)
    warning = next(i for i, line in enumerate(told.splitlines()) if "disk" in line)
    assert warning < next(i for i, line in enumerate(told.splitlines()) if line.startswith("step "))
    assert "disk" not in code(nursery.train(recipe, tmp_path / "other", *options), 0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are closed."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_read_only_from_the_start(open_folder: Path, nursery: Nursery) -> None:
    """As another user where we are root, who may write everywhere."""
    recipe = write_recipe(open_folder / "recipe")
    (open_folder / "closed").mkdir(mode=0o555)
    user = NOBODY if os.geteuid() == 0 else 0
    told = code(nursery.train(recipe, open_folder / "closed" / "run", user=user), 2)
    assert f"cannot write to {open_folder / 'closed' / 'run'}" in told
    assert "--out" in told
    assert "step 1" not in told


def test_two_processes_on_a_read_only_file_system(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    refused = {"kind": "refuse", "errno": errno.EROFS, "words": ""}
    message = first_code(nursery.train(recipe, tmp_path / "run", processes=2, faults=(refused,)), 2)
    assert f"cannot write to {tmp_path / 'run'}: Read-only file system" in message and "--out" in message
    assert "step 1" not in message and not (tmp_path / "run").exists()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_read_only_from_some_step_on(processes: int, nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "here" / "run"
    run.parent.mkdir()
    refused = {"kind": "refuse", "errno": errno.EROFS, "words": ".step-00000006"}
    told = first_code(nursery.train(recipe, run, processes=processes, faults=(refused,)), 2)
    assert f"cannot write to {run}" in told
    assert whole_checkpoints(run) == [3]
