"""A training that has ended leaves no open file, no thread, no process and no half-written file, however it ended."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import pytest
from harness import below, leftovers

from regard.errors import DivergedError, StoppedError
from regard.training.loop.train_step import TrainStep
from regard.training.run.training_run import train

from ...repeats import by_default


def in_use() -> tuple[set[str], set[str], set[int]]:
    """Open files but for torch's own, threads, and child processes."""
    gc.collect()  # an exception and its frames hold each other
    files = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    files = {name for name in files if name.startswith("/") and not name.startswith("/proc/")}
    return files, {thread.name for thread in threading.enumerate()}, set(below(os.getpid()))


@pytest.fixture(scope="module", autouse=True)
def opened_once_for_all(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a first training opens for those after it."""
    train(recipe, out=tmp_path_factory.mktemp("first") / "run", overrides={"training.steps": 4}, quiet=True)


@pytest.mark.parametrize("end", by_default({"stopped"}, ["done", "stopped", "failed"]))
def test_nothing_is_left(end: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, handlers = in_use(), [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    step = TrainStep.__call__

    def disturbed(train_step: TrainStep, micro_batches: list) -> None:
        step(train_step, micro_batches)
        progress = train_step.state.progress
        if progress.step == 5 and end == "stopped":
            signal.raise_signal(signal.SIGTERM)
        if progress.step == 5 and end == "failed":
            raise DivergedError("as if")

    monkeypatch.setattr(TrainStep, "__call__", disturbed)
    if end == "done":
        train(recipe, out=tmp_path / "run", quiet=True)
    else:
        with pytest.raises(StoppedError if end == "stopped" else DivergedError):
            train(recipe, out=tmp_path / "run", quiet=True)
    assert in_use() == before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert leftovers(tmp_path / "run") == []
    assert not list(tmp_path.rglob("*lock*"))
