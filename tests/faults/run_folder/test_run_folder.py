"""Folders in which no run can be, and folders and terminals that vanish during a training: clear errors, all saved."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import leftovers, whole_checkpoints

from regard.errors import ModelError, StoppedError, UsageError
from regard.training.loop.train_step import TrainStep
from regard.training.run.training_run import train


def everything(folder: Path) -> list[str]:
    return sorted(os.fsdecode(path) for path in folder.rglob("*"))


def a_file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "run"


def a_dangling_link(folder: Path) -> Path:
    (folder / "link").symlink_to("nowhere")
    return folder / "link"


def a_long_name(folder: Path) -> Path:
    return folder / ("x" * 255)


def a_name_that_is_too_long(folder: Path) -> Path:
    return folder / ("x" * 300) / "run"


def not_utf8(folder: Path) -> Path:
    return folder / os.fsdecode(b"caf\xe9")


def a_foreign_folder(folder: Path) -> Path:
    (folder / "mine").mkdir()
    (folder / "mine" / "letter").touch()
    return folder / "mine"


def empty(folder: Path) -> str:
    return ""


def a_lock_that_is(make: Callable[[Path], object]) -> Callable[[Path], Path]:
    def run(folder: Path) -> Path:
        (folder / "run" / "training").mkdir(parents=True)
        make(folder / "run" / "training" / "lock")
        return folder / "run"

    return run


def linked(lock: Path) -> None:
    lock.with_name("precious").write_text("precious")
    lock.symlink_to("precious")


def hard_linked(lock: Path) -> None:
    lock.with_name("precious").write_text("precious")
    os.link(lock.with_name("precious"), lock)


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (empty, "--out is empty"),
    "a file": (a_file, "is a file, not a folder"),
    "below a file": (below_a_file, "Not a directory"),
    "a dangling link": (a_dangling_link, "is a link to nowhere, which does not exist"),
    "a long name": (a_long_name, "at most 220 bytes"),
    "a name that is too long": (a_name_that_is_too_long, "too long"),
    "not UTF-8": (not_utf8, "not UTF-8"),
    "a foreign folder": (a_foreign_folder, "is not a training run"),
    "the lock is a folder": (a_lock_that_is(lambda lock: lock.mkdir()), "a lock must be a file of its own"),
    "the lock is a link": (a_lock_that_is(linked), "a lock must be a file of its own"),
    "the lock is a hard link": (a_lock_that_is(hard_linked), "a lock must be a file of its own"),
    "the lock is a pipe": (a_lock_that_is(os.mkfifo), "a lock must be a file of its own"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_run_can_be_there(case: str, recipe: Path, tmp_path: Path) -> None:
    make, words = CASES[case]
    out = make(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(UsageError, match=words) as error:
        train(recipe, out=out, quiet=True)
    assert error.value.exit_code == 2
    assert everything(tmp_path) == before
    for precious in tmp_path.rglob("precious"):
        assert precious.read_text() == "precious"


def test_the_current_folder(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    train(recipe, out=".", overrides={"training.steps": 4}, quiet=True)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert everything(tmp_path)[0] == str(tmp_path / "run") and leftovers(tmp_path / "run") == []


def at_steps(acts: dict[int, Callable[[], object]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when a step has ended."""
    step = TrainStep.__call__

    def disturbed(train_step: TrainStep, micro_batches: list) -> None:
        step(train_step, micro_batches)
        acts.get(train_step.state.progress.step, lambda: None)()

    monkeypatch.setattr(TrainStep, "__call__", disturbed)


def test_the_folder_is_renamed(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if another training has begun there meanwhile: its files and its lock stay."""
    run, lock = tmp_path / "run", tmp_path / "run" / "training" / "lock"

    def rename() -> None:
        run.rename(tmp_path / "renamed")
        lock.parent.mkdir(parents=True)
        lock.write_text("of another training")

    with monkeypatch.context() as context:
        at_steps({5: rename}, context)
        with pytest.raises(ModelError, match="was moved or removed while a run was using it"):
            train(recipe, out=run, quiet=True)
    assert everything(run) == [str(lock.parent), str(lock)]
    assert lock.read_text() == "of another training"
    assert whole_checkpoints(tmp_path / "renamed") == [3]
    train(recipe, out=tmp_path / "renamed", quiet=True)
    assert max(whole_checkpoints(tmp_path / "renamed")) == 12


def test_the_folder_is_removed(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_steps({5: lambda: shutil.rmtree(tmp_path / "run")}, monkeypatch)
    with pytest.raises(ModelError, match="was moved or removed while a run was using it"):
        train(recipe, out=tmp_path / "run", quiet=True)
    assert everything(tmp_path) == []


class ClosedTerminal:
    """What stderr is after the user has closed the terminal."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return False


def test_the_terminal_is_closed(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before the signal, which must not end the training without a save."""

    at_steps(
        {
            2: lambda: monkeypatch.setattr(sys, "stderr", ClosedTerminal()),
            5: lambda: signal.raise_signal(signal.SIGHUP),
        },
        monkeypatch,
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    try:
        with pytest.raises(StoppedError, match="stopped by SIGHUP after step 5") as error:
            train(recipe, out=tmp_path / "run")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert error.value.exit_code == 129
    assert max(whole_checkpoints(tmp_path / "run")) == 5
