"""SIGTERM and Ctrl-C, wherever they come: all is saved within the step, and the exit code says what happened."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Nursery, code, contents, held, leftovers, wait_for, wait_for_step, whole_checkpoints

PLACES = [("step", 5, 2), ("validation", 4, 1), ("save", 3, 1), ("data", 6, 1)]
OTHERS = [(where, at, 3 - processes) for where, at, processes in PLACES]  # in one process instead of two, or in two


@pytest.mark.parametrize(
    ("where", "at", "processes"), [*PLACES, *(pytest.param(*other, marks=pytest.mark.slow) for other in OTHERS)]
)
def test_sigterm(
    where: str, at: int, processes: int, nursery: Nursery, recipe: Path, wholes: Callable[[int], Path], tmp_path: Path
) -> None:
    """With two processes, one of them is in that place. In a step and in validation the other one gets the signal."""
    run, last = tmp_path / "run", 5 if where == "data" else at
    rank = processes - 1 if where in ("step", "data") else 0  # only the first one validates and saves
    team = nursery.train(recipe, run, processes=processes, faults=held(where, at, tmp_path, rank, processes))
    wait_for(tmp_path / "reached")
    if where == "data":  # that never come: both must know of the signal
        wait_for_step(tmp_path / "batches", last)  # batches are made ahead: those before it are still trained on
        team.send(signal.SIGTERM)
    else:
        other = rank if where == "save" else processes - 1 - rank
        team.children[other].send(signal.SIGTERM)
        (tmp_path / "go").touch()
    assert f"stopped by SIGTERM after step {last}" in code(team, 143)
    assert max(whole_checkpoints(run)) == last
    assert leftovers(run) == []
    assert f"continuing from step {last}" in code(nursery.train(recipe, run, processes=processes), 0)
    assert contents(run) == contents(wholes(processes))


def test_ctrl_c_once(nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    team = nursery.train(recipe, run, faults=held("step", 5, tmp_path))
    wait_for(tmp_path / "reached")
    team.send(signal.SIGINT)
    (tmp_path / "go").touch()
    assert "stopped by Ctrl-C after step 5" in code(team, 130)
    assert max(whole_checkpoints(run)) == 5
    code(nursery.train(recipe, run), 0)
    assert contents(run) == contents(whole)


@pytest.mark.parametrize(
    ("where", "at", "newest"), [("save", 6, 3), pytest.param("step", 5, 3, marks=pytest.mark.slow)]
)
def test_ctrl_c_twice(where: str, at: int, newest: int, nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path):
    """Now, without another save; what was saved before is intact."""
    run = tmp_path / "run"
    team = nursery.train(recipe, run, faults=held(where, at, tmp_path))
    wait_for(tmp_path / "reached")
    team.send(signal.SIGINT)
    wait_for(tmp_path / "interrupted")  # two at once would be one for the system
    team.send(signal.SIGINT)
    code(team, 130)
    assert whole_checkpoints(run) == [newest]
    assert f"continuing from step {newest}" in code(nursery.train(recipe, run), 0)
    assert contents(run) == contents(whole)


def test_a_second_sigterm_does_not_cut_a_save_short(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """Schedulers send it more than once."""
    run = tmp_path / "run"
    team = nursery.train(recipe, run, faults=held("save", 6, tmp_path))
    wait_for(tmp_path / "reached")
    team.send(signal.SIGTERM)
    wait_for(tmp_path / "interrupted")
    team.send(signal.SIGTERM)
    (tmp_path / "go").touch()
    code(team, 143)
    assert whole_checkpoints(run) == [3, 6]


def test_sigterm_before_the_first_step(nursery: Nursery, recipe: Path, tmp_path: Path) -> None:
    """While data are read and nothing is there to be saved: it ends all the same, and leaves nothing in the way."""
    run = tmp_path / "run"
    team = nursery.train(recipe, run, faults=held("data", 1, tmp_path))
    wait_for(tmp_path / "reached")
    os.kill(team.pid, signal.SIGTERM)
    code(team, 143)
    assert "continuing from" not in code(nursery.train(recipe, run), 0)
