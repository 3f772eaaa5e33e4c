"""kill -9 at any moment, also in a save: the same command goes on, and ends with the same bits as if nothing had been.

Most kills are at a random event (see inject.py), for a save takes a small part of the time and has most of the danger.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from harness import Nursery, code, contents, largest_difference, leftovers, tensors, whole_checkpoints

Wholes = Callable[[int], Path]


def committed(events: Path) -> int:
    """The newest step that had been saved, by the list of events; 0 when there was none."""
    lines = events.read_text().splitlines() if events.exists() else []
    # The last event is the one that did not happen.
    done = [line.split()[-1] for line in lines[:-1] if line.split()[1] == "rename"]
    return max((int(path[-8:]) for path in done if "/training/step-" in path), default=0)


def killed_at(nursery: Nursery, recipe: Path, run: Path, event: int, *, processes: int = 1, rank: int = 0) -> bool:
    """Train until one process comes to that event; False where the training came to its end before it."""
    log = run.parent / "events"
    log.unlink(missing_ok=True)
    newest = max(whole_checkpoints(run), default=0)
    faults = [{"kind": "note events", "file": str(log)}, {"kind": "die", "event": event}]
    if processes > 1:
        faults = [faults[0] | {"rank": 0}, faults[1] | {"rank": rank}]
    team = nursery.train(recipe, run, processes=processes, faults=tuple(faults))
    codes = team.wait()  # the others notice and end, too
    killed = -signal.SIGKILL in codes
    assert killed or set(codes) == {0}, team.err
    # Nothing is ever lost: neither what was there before, nor what this process had saved.
    assert max(whole_checkpoints(run), default=0) >= max(newest, committed(log))
    return killed


def train_through(nursery: Nursery, recipe: Path, run: Path, draw: random.Random, *, processes: int = 1) -> int:
    """Train to the end through kills at random events of a random process; the number of kills."""
    run.parent.mkdir(exist_ok=True)
    kills = 0
    while True:
        rank = draw.randrange(processes)
        most = 240 if rank == 0 else 24  # only the first process writes
        event = draw.randint(1, most // 4 if kills < 3 else most)  # soon at first, so that there are some
        if not killed_at(nursery, recipe, run, event, processes=processes, rank=rank):
            return kills
        kills += 1


@pytest.mark.parametrize(
    ("seed", "processes"), [(1, 1), *(pytest.param(*other, marks=pytest.mark.slow) for other in ((3, 2), (2, 1)))]
)
def test_killed_at_random_events(
    seed: int, processes: int, nursery: Nursery, recipe: Path, wholes: Wholes, tmp_path: Path
) -> None:
    run = tmp_path / "here" / "run"
    assert train_through(nursery, recipe, run, random.Random(seed), processes=processes) >= 3
    assert contents(run) == contents(wholes(processes))
    assert leftovers(run) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("processes", [1, 2])
def test_two_hundred_kills(processes: int, nursery: Nursery, recipe: Path, wholes: Wholes, tmp_path: Path) -> None:
    """Half of them at random events, half at random times of the clock."""
    draw, kills, ends = random.Random(0), 0, 0
    began = time.monotonic()
    code(nursery.train(recipe, tmp_path / "timed" / "run", processes=processes), 0)
    usual = time.monotonic() - began
    while kills < 200:
        run = tmp_path / str(ends) / "run"
        if ends % 2:
            kills += train_through(nursery, recipe, run, draw, processes=processes)
        else:
            kills += train_through_clock(nursery, recipe, run, draw, usual, processes=processes)
        ends += 1
        assert contents(run) == contents(wholes(processes))
        assert leftovers(run) == []
    print(f"{kills} kills with {processes} process(es), {ends} trainings to their end, all bitwise equal")


def train_through_clock(
    nursery: Nursery, recipe: Path, run: Path, draw: random.Random, usual: float, *, processes: int
) -> int:
    """The same with kills of all processes after a random time."""
    run.parent.mkdir(exist_ok=True)
    kills = 0
    while True:
        newest = max(whole_checkpoints(run), default=0)
        team = nursery.train(recipe, run, processes=processes)
        time.sleep(draw.random() * usual)
        for child in draw.sample(team.children, processes):
            if not child.ended:
                child.send(signal.SIGKILL)
        codes = team.wait()
        assert max(whole_checkpoints(run), default=0) >= newest
        if -signal.SIGKILL not in codes:
            assert set(codes) == {0}, team.err
            return kills
        kills += 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_four_processes_end_within_1e_5(nursery: Nursery, recipe: Path, wholes: Wholes, tmp_path: Path) -> None:
    run = tmp_path / "here" / "run"
    assert train_through(nursery, recipe, run, random.Random(4), processes=4) >= 3
    assert largest_difference(tensors(run, 12), tensors(wholes(4), 12)) <= 1e-5


@pytest.fixture(scope="module")
def events(nursery: Nursery, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What an undisturbed run does, in order."""
    folder = tmp_path_factory.mktemp("events")
    file = folder / "events"
    code(nursery.train(recipe, folder / "run", faults=({"kind": "note events", "file": str(file)},)), 0)
    return [line.partition(" ")[2] for line in file.read_text().splitlines()]


def of_save(events: list[str], step: int) -> range:
    """The numbers (from 1) of the events of the save of that step, and of what is removed after it."""
    first = next(i for i, what in enumerate(events, start=1) if f"step-{step:08d}" in what)
    return range(first, next(i for i, what in enumerate(events, start=1) if i > first and what.startswith("step ")))


def test_killed_in_a_save(events: list[str], nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path) -> None:
    """At some events of the save of step 9, which also removes the checkpoint of step 3; the slow test has them all."""
    kill_in_save(of_save(events, 9)[::25], nursery, recipe, whole, tmp_path)


@pytest.mark.slow
def test_killed_at_every_event_of_a_save(
    events: list[str], nursery: Nursery, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    kill_in_save(of_save(events, 9), nursery, recipe, whole, tmp_path)


def kill_in_save(moments: Iterable[int], nursery: Nursery, recipe: Path, whole: Path, folder: Path) -> None:
    for event in moments:
        run = folder / str(event) / "run"
        run.parent.mkdir()
        assert killed_at(nursery, recipe, run, event)
        newest = max(whole_checkpoints(run))
        assert newest in (6, 9)
        assert f"continuing from step {newest}" in code(nursery.train(recipe, run), 0)
        assert contents(run) == contents(whole)
        assert leftovers(run) == []


def test_the_order_of_a_save(events: list[str]) -> None:
    """After a power cut, too, a checkpoint is there whole: only what was synced is sure to be."""
    save = [events[i - 1] for i in of_save(events, 9)]
    fresh = next(what.split()[1] for what in save if what.startswith("mkdir"))

    def only(start: str, end: str) -> int:
        """Where the one event is that begins and ends like this."""
        (place,) = [i for i, what in enumerate(save) if what.startswith(start) and what.endswith(end)]
        return place

    renamed = only(f"rename {fresh} ", "/training/step-00000009")
    names = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
    synced = [only("fsync", f"{fresh}/{name}") for name in names]
    assert max(synced) < only("fsync", fresh) < renamed  # first the files, then the folder with their names
    folder = [i for i, what in enumerate(save) if what.startswith("fsync") and what.endswith("/training")]
    pointed = only("rename", "/training/latest")
    assert any(renamed < i < pointed for i in folder)
    assert any(pointed < i for i in folder)
    read = [max(i for i, what in enumerate(save) if what.startswith("read") and what.endswith(n)) for n in names]
    removed = [i for i, what in enumerate(save) if "step-00000003" in what]
    assert renamed < min(read)
    assert max(read) < min(removed)  # an old one goes when the new one was read again
