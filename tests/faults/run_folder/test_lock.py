"""Two trainings in one folder: the second is refused and told who is there; a lock of the dead is no lock."""

from __future__ import annotations

import os
import platform
import re
import signal
from pathlib import Path

import pytest
from harness import Nursery, code, contents, held, wait_for


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_second_is_refused(processes: int, nursery: Nursery, recipe: Path, wholes, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = nursery.train(recipe, run, processes=processes, faults=held("step", 5, tmp_path, 0, processes))
    wait_for(tmp_path / "reached")
    told = code(nursery.train(recipe, run), 2)
    assert f"{run} is in use" in told
    assert f"process {first.pid} on {platform.node()}" in told
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", told)
    (tmp_path / "go").touch()
    code(first, 0)
    assert contents(run) == contents(wholes(processes))
    code(nursery.train(recipe, run), 0)  # the lock went with its holder


def test_a_stale_lock_is_taken_over(nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = nursery.train(recipe, run, faults=held("step", 5, tmp_path))
    wait_for(tmp_path / "reached")
    first.send(signal.SIGKILL)
    code(first, -9)
    told = code(nursery.train(recipe, run), 0)
    assert f"process {first.pid} on {platform.node()}" in told  # whom it takes over from
    assert contents(run) == contents(whole)


def test_a_lock_of_another_process_with_the_same_number(
    nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    """A number that a living process has again, as after a restart of the machine: who wrote it is dead."""
    run = tmp_path / "run"
    code(nursery.train(recipe, run, faults=({"kind": "die", "at": 5},)), -9)
    (lock,) = [path for path in (run / "training").iterdir() if "lock" in path.name]
    lock.write_text(re.sub(r"process \d+", f"process {os.getpid()}", lock.read_text()))
    code(nursery.train(recipe, run), 0)
    assert contents(run) == contents(whole)


def test_of_many_at_once_one_trains(nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    teams = [nursery.train(recipe, run) for _ in range(4)]
    codes = [team.wait()[0] for team in teams]
    assert 0 in codes
    assert set(codes) <= {0, 2}, [team.err for team in teams]
    assert contents(run) == contents(whole)
